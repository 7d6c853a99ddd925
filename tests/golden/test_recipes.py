"""Each recipe says what its document says, flag by flag, in the version that the document speaks of.

`recipes/000.json` … are written by `recipes/read_documents.py` from the documents' text; `recipes/matches.json` names
the recipe of each command, and the differences that are meant, with the reason.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from dsabench import rooms
from dsabench.config.load import find_mistakes, load_launch
from dsabench.config.specs import LaunchConfig
from dsabench.errors import InputError
from dsabench.runtimes.command import Launch
from dsabench.runtimes.plan import LaunchPlan, PlannedProcess
from dsabench.sglang.accepts import Accepted, from_table
from dsabench.sglang.generator import Wish, generate
from dsabench.sglang.plan import plan_sglang
from dsabench.sglang.rules.table import judge
from dsabench.sglang.versions import parse_version

HERE = Path(__file__).parent / "recipes"
GOLDENS = [entry for file in sorted(HERE.glob("00*.json")) for entry in json.loads(file.read_text())]
MATCHES: dict[str, Any] = json.loads((HERE / "matches.json").read_text())
DEVIATIONS: dict[str, Any] = MATCHES["deviations"]
RECIPES = sorted(
    f"recipes/{file.stem}" for folder in rooms.folders("configs")[:1] for file in (folder / "recipes").glob("*")
)

Said = dict[str, Any]


def launch_of(how: LaunchConfig) -> Launch:
    return Launch(
        env=how.env, command_prefix=how.command_prefix, container=how.container, entry=how.entry, sites=how.sites
    )


@cache
def planned(recipe: str, version: str) -> LaunchPlan:
    config = load_launch(f"recipes/{recipe}")
    return plan_sglang(config.spec({}), from_table(parse_version(version)), launch_of(config.launch))


def said(argv: Sequence[str], accepted: Accepted) -> Said:
    """Argument → its values, whatever it was called; `head` is what stands before the first flag."""
    first = next((index for index, word in enumerate(argv) if word.startswith("--")), len(argv))
    found: Said = {"head": ["python" if word == "python3" else word for word in argv[:first]]}
    router = "sglang_router.launch_router" in argv
    name = "head"
    for word in argv[first:]:
        if word.startswith("--"):
            full = word if router else accepted.expand(word)
            assert full is not None, f"{word} is no flag of {accepted.version}, or an ambiguous one"
            name = full if router else accepted.flags[full].dest
            assert name not in found, f"{word} stands twice"
            found[name] = []
        else:
            found[name].append(json.loads(word) if word.startswith("{") else word)
    return found


def differences(document: Said, recipe: Said) -> dict[str, list[Any]]:
    """Argument → what the document says and what the recipe says; null where it says nothing."""
    names = {*document, *recipe}
    both = {name: [document.get(name), recipe.get(name)] for name in names}
    return {name: pair for name, pair in both.items() if pair[0] != pair[1] and pair[0] != ["$RANK"]}


def process_for(golden: Mapping[str, Any], processes: Sequence[PlannedProcess]) -> PlannedProcess:
    argv = golden["argv"]
    role = golden.get("part_of", "server")
    if "--disaggregation-mode" in argv:
        role = argv[argv.index("--disaggregation-mode") + 1]
    elif "sglang_router.launch_router" in argv:
        role = "router"
    elif role == "server" and all(process.role != "server" for process in processes):
        role = "prefill"  # the document forgot to say so
    node = argv[argv.index("--node-rank") + 1] if "--node-rank" in argv else "0"
    rank = 0 if node == "$RANK" else int(node)
    (found,) = [process for process in processes if (process.role, process.node_rank) == (role, rank)]
    return found


@pytest.mark.parametrize("golden", GOLDENS, ids=lambda golden: golden["id"])
def test_a_recipe_says_what_its_document_says(golden: dict[str, Any]) -> None:
    accepted = from_table(parse_version(golden["version"]))
    process = process_for(golden, planned(MATCHES["recipes"][golden["id"]], golden["version"]).processes)
    document, recipe = said(golden["argv"], accepted), said(process.argv, accepted)
    if "part_of" in golden:
        del document["head"]
        recipe = {name: value for name, value in recipe.items() if name in document}
        assert golden["env"].items() <= process.env.items()
    else:
        assert golden["env"] == process.env
    expected = {name: pair[:2] for name, pair in DEVIATIONS.get(golden["id"], {}).items()}
    assert differences(document, recipe) == expected


def test_every_deviation_says_why() -> None:
    pairs = [pair for deviations in DEVIATIONS.values() for pair in deviations.values()]
    assert [pair for pair in pairs if len(pair) != 3 or not pair[2]] == []
    assert len(pairs) <= 12


def test_every_command_of_the_documents_has_a_recipe() -> None:
    assert {golden["id"] for golden in GOLDENS} == set(MATCHES["recipes"])
    assert len(set(MATCHES["recipes"].values())) > 15


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_recipe_has_no_mistake_and_bears_its_files_name(recipe: str) -> None:
    assert find_mistakes(recipe) == ()
    assert f"name: {recipe.removeprefix('recipes/')}\n" in rooms.find("configs", recipe).read_text()


@pytest.mark.parametrize("recipe", RECIPES)
def test_in_the_newest_version_it_is_rendered(recipe: str) -> None:
    accepted = from_table(parse_version("0.5.23"))
    config = load_launch(recipe)
    commands = plan_sglang(config.spec({}), accepted, launch_of(config.launch))
    refusals = {one.rule for one in judge(commands, config.spec({}), accepted) if one.severity == "error"}
    assert refusals == set(MATCHES["in 0.5.23"].get(recipe.removeprefix("recipes/"), []))


GENERATED = json.loads((HERE / "generator.json").read_text())
NAMES = {"v32": "v3.2", "v32exp": "v3.2-exp", "v32speciale": "v3.2-speciale"}
NAMES |= {"v32nvfp4": "v3.2-nvfp4", "v32mxfp4": "v3.2-mxfp4"}


def test_the_generator_gives_what_the_cookbooks_gives() -> None:
    """All choices, in a version that has the flags of the cookbook."""
    accepted = from_table(parse_version("0.5.10"))
    for choice in GENERATED:
        wish = Wish(
            choice["hardware"],
            NAMES[choice["modelname"]],
            tuple(choice["strategy"].split(",")),
            choice["reasoningParser"] == "enabled",
            choice["toolcall"] == "enabled",
        )
        if choice["command"] is None:
            with pytest.raises(InputError, match=r"^MD0[123]: "):
                generate(wish)
            continue
        (process,) = plan_sglang(generate(wish).spec, accepted, Launch(entry="serve")).processes
        assert differences(said(choice["command"].split(), accepted), said(process.argv, accepted)) == {}, choice
        assert process.env == {}
