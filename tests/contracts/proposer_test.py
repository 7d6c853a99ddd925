"""What holds for every strategy that a config can name."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import warnings
from collections.abc import Callable

import pytest

from dsabench.config.load import load_study
from dsabench.config.specs import StudyConfig
from dsabench.model.space import is_legal, key_of, legal
from dsabench.model.study import Assignment, SearchSpace
from dsabench.study.proposers import PROPOSERS, Observation, Proposer, make_proposer

SPACES: dict[str, SearchSpace] = {
    "conditional": load_study("local").space,
    "none": SearchSpace(axes=()),
    "single": SearchSpace.model_validate({"axes": [{"name": "cpu_threads", "values": [1]}]}),
    "mixed": SearchSpace.model_validate(
        {
            "axes": [
                {"name": "prefix_cache", "values": [True, False]},
                {"name": "chunked_prefill_size", "values": [4096, 64, 1024, 256]},
                {"name": "dtype", "values": ["float32", "bfloat16"]},
                {"name": "cpu_threads", "values": [1, 2]},
            ],
            "when": {"cpu_threads": {"dtype": "float32"}, "chunked_prefill_size": {"prefix_cache": True}},
            "forbid": [{"dtype": "bfloat16", "chunked_prefill_size": 64}],
        }
    ),
    "shared": SearchSpace.model_validate(
        {
            "axes": [
                {"name": "pp_max_micro_batch_size", "values": [1, 2, 4]},  # a running server changes it
                {"name": "chunked_prefill_size", "values": [64, 256, 1024, 4096]},
                {"name": "prefix_cache", "values": [True, False]},
            ],
            "when": {"pp_max_micro_batch_size": {"prefix_cache": True}},
        }
    ),
    "huge": SearchSpace.model_validate(
        {
            "axes": [{"name": f"k{i}", "values": list(range(8))} for i in range(12)],
            "forbid": [{"k0": 0, "k1": value} for value in range(4)],
            "when": {"k2": {"k0": 1}},
        }
    ),
}

Make = Callable[[str], tuple[Proposer, SearchSpace, Assignment]]


@pytest.fixture(params=PROPOSERS)
def make(request: pytest.FixtureRequest) -> Make:
    config = load_study("local")

    def over(name: str) -> tuple[Proposer, SearchSpace, Assignment]:
        spec = config.proposer.model_copy(update={"kind": request.param, "seed": 3})
        mine: StudyConfig = config.model_copy(update={"proposer": spec, "space": SPACES[name]})
        return make_proposer(mine), mine.space, mine.runtime.base

    return over


def observe(assignment: Assignment) -> Observation:
    """Deterministic results, some of them failed or infeasible."""
    rng = random.Random(repr(key_of(assignment)))
    value = None if rng.random() < 0.15 else rng.uniform(1, 100)
    violation, fault = rng.choice([0.0, 0.0, 0.3]), rng.choice(["exited", "timeout"]) if value is None else None
    return Observation(assignment, value, violation, fault, rng.uniform(60, 300))


@pytest.mark.parametrize(
    "name", ["single", "mixed", "shared", "none", pytest.param("conditional", marks=pytest.mark.slow)]
)
def test_proposes_every_legal_assignment_once_and_then_nothing(make: Make, name: str) -> None:
    proposer, space, base = make(name)
    history: list[Observation] = []
    while (assignment := proposer.ask(history)) is not None:
        assert is_legal(space, base, assignment)
        history.append(observe(assignment))
    keys = [key_of(one.assignment) for one in history]
    assert len(keys) == len(set(keys))
    assert set(keys) == {key_of(one) for one in legal(space, base)}


def test_walks_a_space_too_large_to_list(make: Make) -> None:
    proposer, space, base = make("huge")
    history: list[Observation] = []
    for _ in range(14):
        assignment = proposer.ask(history)
        assert assignment is not None
        assert is_legal(space, base, assignment)
        history.append(observe(assignment))
    assert len({key_of(one.assignment) for one in history}) == 14


@pytest.mark.parametrize("name", ["conditional", "mixed", "shared"])
def test_the_same_history_gives_the_same_proposal_to_a_fresh_proposer(make: Make, name: str) -> None:
    proposer, space, base = make(name)
    history = [observe(one) for one in list(legal(space, base))[::2]]
    for length in (0, 1, len(history) // 2, len(history)):
        once, again = proposer.ask(history[:length]), make(name)[0].ask(tuple(history[:length]))
        assert once is not None
        assert once == again == proposer.ask(history[:length])


def test_a_fresh_process_proposes_alike(make: Make, request: pytest.FixtureRequest) -> None:
    """Nothing hangs on the hash seed of the process."""
    proposer, _, _ = make("conditional")
    history: list[Observation] = []
    for _ in range(12):
        assignment = proposer.ask(history)
        assert assignment is not None
        history.append(observe(assignment))
    kind = request.node.callspec.params["make"]
    said = json.dumps([[dict(one.assignment), one.value, one.violation, one.fault, one.seconds] for one in history])
    code = (
        "import json, sys\n"
        "from dsabench.config.load import load_study\n"
        "from dsabench.study.proposers import Observation, make_proposer\n"
        "config = load_study('local')\n"
        "spec = config.proposer.model_copy(update={'kind': sys.argv[1], 'seed': 3})\n"
        "proposer = make_proposer(config.model_copy(update={'proposer': spec}))\n"
        "print(json.dumps(dict(proposer.ask([Observation(*one) for one in json.loads(sys.argv[2])]))))\n"
    )
    told = subprocess.run([sys.executable, "-c", code, kind, said], capture_output=True, text=True, check=True)
    assert json.loads(told.stdout) == proposer.ask(history)
    assert told.stderr == ""


def test_inactive_axes_and_foreign_settings_in_the_history_do_no_harm(make: Make) -> None:
    """The search tells the base's values of all axes, whether they are active or in the space or not."""
    proposer, space, base = make("mixed")
    told = [
        Observation({"prefix_cache": False, "chunked_prefill_size": 64, "dtype": "bfloat16", "cpu_threads": 1}, 5.0),
        Observation({"prefix_cache": True, "chunked_prefill_size": 77, "dtype": "float32", "cpu_threads": 2}, 6.0),
        Observation({}, 7.0),
    ]
    history = list(told)
    while (assignment := proposer.ask(history)) is not None:
        history.append(observe(assignment))
    proposed = {key_of(one.assignment) for one in history[len(told) :]}
    first = key_of({"prefix_cache": False, "dtype": "bfloat16"})
    assert proposed == {key_of(one) for one in legal(space, base)} - {first}


def test_a_history_in_which_all_failed_or_is_infeasible_is_no_obstacle(make: Make) -> None:
    proposer, space, base = make("conditional")
    some = list(legal(space, base))[:20]
    for history in (
        [Observation(one, None) for one in some],
        [Observation(one, None, fault="exited") for one in some],
        [Observation(one, 1.0, 0.5) for one in some],
        [Observation(one, 1.0) for one in some],
    ):
        assert proposer.ask(history) is not None


def test_says_nothing_to_the_user(make: Make, capfd: pytest.CaptureFixture[str]) -> None:
    proposer, space, base = make("conditional")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        proposer.ask([observe(one) for one in list(legal(space, base))[:20]])
    assert [str(one.message) for one in caught] == []
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("name", ["conditional", "mixed", "shared"])
def test_a_search_that_is_killed_anywhere_ends_as_one_that_is_not(make: Make, name: str) -> None:
    """Every fourth setting another process goes on, with the history alone."""

    def search(killed_after: int) -> list[Assignment]:
        history: list[Observation] = []
        while len(history) < 24:
            if len(history) % killed_after == 0:
                proposer, _, _ = make(name)
            assignment = proposer.ask(tuple(history))
            if assignment is None:
                break
            history.append(observe(assignment))
        return [one.assignment for one in history]

    assert search(4) == search(24)
