"""The patch on the runtime's own wheels: applied twice and reverted, and the patched functions run.

Wheels come from the folder in DSABENCH_SGLANG_WHEELS, else from the package index, into the user's cache.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from dsabench.cli.main import run
from dsabench.emit.loader import KINDS
from dsabench.emit.patch import apply_patch, plan_patch, revert_patch
from dsabench.emit.payload import plugin
from dsabench.emit.tables import table_json
from dsabench.emit.touch import LOADER, touch
from dsabench.emit.tree import Tree, find_tree
from dsabench.sglang.versions import parse_version
from unit.emit.made import as_file, made_table
from wheels.wheels import fetch

pytestmark = pytest.mark.slow

VERSIONS = ("0.5.9", "0.5.12", "0.5.13", "0.5.15", "0.5.16", "0.5.23")
CHILD = Path(__file__).parents[1] / "wheels" / "patched_child.py"
ARGS = {
    "kv_cache_dtype": "fp8_e4m3",
    "tp_size": 8,
    "dp_size": 1,
    "enable_dp_attention": False,
    "dcp_size": 1,
    "enable_hisparse": False,
    "hisparse_config": None,
    **dict.fromkeys(f"{name}_{phase}_backend" for name in ("nsa", "dsa") for phase in ("prefill", "decode")),
}
BATCHES = [[8192, 8192], [64, 65536], [4096, 4096 * 600], [100, 1500]]


def place() -> Path:
    given = os.environ.get("DSABENCH_SGLANG_WHEELS")
    folder = Path(given) if given else Path.home() / ".cache" / "dsabench" / "wheels"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@pytest.fixture(scope="module", params=VERSIONS)
def tree(request, tmp_path_factory):
    wheel = fetch(request.param, place())
    if wheel is None:
        pytest.skip(f"no wheel of sglang {request.param}: offline, and DSABENCH_SGLANG_WHEELS names no folder with it")
    folder = tmp_path_factory.mktemp(request.param)
    with zipfile.ZipFile(wheel.file) as archive:
        kept = ("sglang/srt/", "sglang/_version.py", "sglang/__init__.py")
        names = [name for name in archive.namelist() if name.startswith(kept) and name.endswith(".py")]
        archive.extractall(folder, names)
    return request.param, folder


def table(folder: Path, kind: str, rule: dict) -> Path:
    path = folder / f"{kind}.json"
    path.write_text(table_json(made_table(kind, rule, evidence={"label": "measured"})))
    return path


@pytest.fixture
def said(capsys):
    """What `emit … --json` answers."""

    def emit(*words: object) -> dict:
        code = run(["emit", *map(str, words), "--json"])
        captured = capsys.readouterr()
        assert code == 0, captured.err
        return json.loads(captured.out)

    return emit


def ask(folder: Path, *changes: dict) -> list[dict]:
    """One answer for each change of the plain question."""
    plain = {"device": "NVIDIA H200", "major": 9, "heads": 16, "batches": BATCHES, "args": ARGS}
    done = subprocess.run(
        [sys.executable, "-I", "-B", str(CHILD), str(folder)],
        input=json.dumps([{**plain, **change} for change in changes or ({},)]),
        capture_output=True,
        text=True,
        check=True,
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


def unzipped(wheel: str, folder: Path) -> str:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    return str(folder)


def digests(folder: Path) -> dict[str, str]:
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def kernels(answer: dict) -> list[str]:
    return [kernel for kernel, _ in answer["choices"][:3]]


CONSTANT = {name: {"form": "constant", "kernel": name} for name in ("flashmla_sparse", "flashmla_kv")}
GRID = {
    "form": "grid",
    "new_tokens": [1, 1024],
    "kv_tokens": [1, 1_000_000],
    "kernels": [["flashmla_kv", "flashmla_kv"], ["flashmla_sparse", "flashmla_kv"]],
}


def test_apply_twice_and_revert_leaves_every_byte(tree, tmp_path, said, capsys):
    version, folder = tree
    before, [unpatched] = digests(folder), ask(folder)
    files = [
        table(tmp_path, "flashmla_auto", GRID),
        table(tmp_path, "mha_threshold", {"form": "threshold", "max_tokens": 1024}),
    ]
    patch = [*files, "--runtime", folder, "--as", "patch"]
    if version == "0.5.9":
        refuses_hisparse(folder, tmp_path, capsys)
    else:
        rule = {"form": "buffer", "device_buffer_size": 6144, "host_to_device_ratio": 8, "swap_in_block_size": 512}
        patch.insert(0, table(tmp_path, "hisparse", rule))
    assert said(*patch, "--check")["state"] == "clean"
    assert digests(folder) == before
    first = said(*patch, "--apply")
    patched = digests(folder)
    assert first["changed"]
    assert patched != before
    assert not any("KeyError" in (why or "") for why in first["imports"].values()), "the reason, not what follows of it"
    again = said(*patch, "--apply")
    assert (again["changed"], again["state"]) == (False, "applied")
    assert digests(folder) == patched
    answer, user = ask(folder, {}, USERS)
    assert kernels(answer) == ["flashmla_sparse", "flashmla_kv", "flashmla_kv"]
    assert answer["choices"][3][1] is False, "1,500 tokens are beyond the tuned threshold of 1,024"
    assert unpatched["choices"][3][1] is True, "and within the shipped one, index_topk"
    if version != "0.5.9":
        assert answer["threshold"] == 1024
        expected = {"top_k": 2048, "device_buffer_size": 6144, "host_to_device_ratio": 8, "swap_in_block_size": 512}
        assert answer["hisparse"] == {name: expected[name] for name in unpatched["hisparse"]}
        users_win(user, expected)
    if version != "0.5.9":
        plugin = unzipped(said(*patch[:-2], "--as", "plugin", "--out", tmp_path)["wheel"], tmp_path / "plugin")
        [aside] = ask(folder, {"plugin": plugin})
        assert any("the plugin does nothing" in line for line in aside["log"])
    assert said(*patch, "--revert")["changed"]
    assert digests(folder) == before
    assert ask(folder) == [unpatched]
    if version != "0.5.9":
        left_over = folder / "sglang" / LOADER
        left_over.write_text("# of a patch, after sglang was upgraded\n")
        questions = ({}, CHOSEN, NO_MATCH["another GPU"], USERS)
        hooked, chosen, other, user = ask(folder, *({**question, "plugin": plugin} for question in questions))
        users_win(user, expected)
        left_over.unlink()
        assert {**hooked, "log": None} == {**answer, "log": None}, "the runtime's own hooks come to the same"
        assert any("tables of the plugin: flashmla_auto,H=16" in line for line in hooked["log"])
        assert kernels(chosen) == ["fa3"] * 3
        assert {**other, "log": None} == {**unpatched, "log": None}


def test_opposite_tables_choose_opposite_kernels_and_no_table_changes_nothing(tree, tmp_path, said):
    _, folder = tree
    unpatched = ask(folder, *NO_MATCH.values())
    patch = [table(tmp_path, "flashmla_auto", CONSTANT["flashmla_sparse"]), "--as", "patch", "--runtime", folder]
    said(*patch, "--apply")
    try:
        [sparse] = ask(folder)
        assert kernels(sparse) == ["flashmla_sparse"] * 3
        assert any("chose flashmla_sparse" in line for line in sparse["log"])
        table(tmp_path, "flashmla_auto", CONSTANT["flashmla_kv"])
        assert said(*patch, "--check")["state"] == "other tables"
        said(*patch, "--apply")
        opposite, chosen, *others = ask(folder, {}, CHOSEN, *NO_MATCH.values())
        assert kernels(opposite) == ["flashmla_kv"] * 3
        assert any("chose flashmla_kv" in line for line in opposite["log"])
        assert sparse["default"] == opposite["default"] == "flashmla_auto"
        assert dict(zip(NO_MATCH, others, strict=True)) == dict(zip(NO_MATCH, unpatched, strict=True))
        assert kernels(chosen) == ["fa3"] * 3, "what the user named stays"
    finally:
        said(*patch, "--revert")


CHOSEN = {"args": {**ARGS, "nsa_prefill_backend": "fa3", "dsa_prefill_backend": "fa3"}}
USERS = {"threshold": 512, "args": {**CHOSEN["args"], "hisparse_config": '{"device_buffer_size": 4096}'}}
"""What a user sets by flag and variable; the variable came with 0.5.10."""


def users_win(answer: dict, tuned: dict) -> None:
    assert kernels(answer) == ["fa3"] * 3
    assert answer["threshold"] == 512
    expected = {**tuned, "device_buffer_size": 4096}
    assert answer["hisparse"] == {name: expected[name] for name in answer["hisparse"]}


NO_MATCH = {
    "another GPU": {"device": "NVIDIA H100 80GB HBM3"},
    "other heads": {"heads": 128, "args": {**ARGS, "dp_size": 8, "enable_dp_attention": True}},
    "bfloat16": {"args": {**ARGS, "kv_cache_dtype": "bfloat16"}},
    "context parallelism": {"cp": True, "args": {**ARGS, "enable_prefill_cp": True}},
    "Blackwell": {"device": "NVIDIA B200", "major": 10},
    "a mixed batch": {"mode": "DECODE", "device": "NVIDIA H20"},
}


def test_the_plugin_asks_all_the_files_that_a_patch_changes_and_no_others():
    """It stands alone, so it has a list of its own; where a file is missing in it, plugin and patch may both be at work."""
    changed = set()
    for version in (*VERSIONS, "0.5.10"):
        tree = sources_of(version)
        for kind in KINDS:
            if (version, kind) == ("0.5.9", "hisparse"):  # it came with 0.5.10
                continue
            touched = touch(tree, {kind})
            assert touched, (version, kind)
            assert all(b"dsa_tuned" in one.after and b"dsa_tuned" not in one.before for one in touched), (version, kind)
            changed |= {one.file for one in touched}
    assert changed == set(plugin._PATCHED)


RELEASES = (
    *(
        "0.5.9",
        "0.5.10",
        "0.5.10.post1",
        "0.5.11",
        "0.5.12",
        "0.5.12.post1",
        "0.5.13",
        "0.5.13.post1",
        "0.5.14",
        "0.5.15",
    ),
    *("0.5.15.post1", "0.5.16", "0.5.17", "0.5.18", "0.5.19", "0.5.20", "0.5.21", "0.5.22", "0.5.23"),
)
RULES = {
    "flashmla_auto": GRID,
    "mha_threshold": {"form": "threshold", "max_tokens": 1024},
    "hisparse": {"form": "buffer", "device_buffer_size": 6144, "host_to_device_ratio": 8},
}


@pytest.mark.parametrize("version", RELEASES)
def test_every_release_is_patched_and_reverted_and_has_the_places_of_the_plugin(version, tmp_path):
    files = sources_of(version).originals
    package = tmp_path / "sglang"
    for name, content in files.items():
        (package / name).parent.mkdir(parents=True, exist_ok=True)
        (package / name).write_bytes(content)
    (package / "_version.py").write_text(f"__version__ = {version!r}\n")
    before = digests(tmp_path)
    kinds = [kind for kind in RULES if (version, kind) != ("0.5.9", "hisparse")]
    tables = [as_file(made_table(kind, RULES[kind])) for kind in kinds]
    assert apply_patch(plan_patch(find_tree(package), tables))
    assert digests(tmp_path) != before
    assert revert_patch(find_tree(package))
    assert digests(tmp_path) == before
    if (package / "srt/plugins/hook_registry.py").is_file():
        missing = [
            places[0][0]
            for slots in plugin._HOOKS.values()
            for places in slots
            if not any(plugin._exists(place, (package,)) for place in places)
        ]
        assert missing == []
    else:
        assert parse_version(version) < parse_version("0.5.12"), "no plugins before"


TABLES_OF_H200 = Path(__file__).parents[2] / "results" / "h200" / "tables"


@pytest.fixture
def checkout(tmp_path):
    """Of a version, as git has it, with a unit test in the suite of CPU tests."""

    def make(version: str) -> Path:
        folder = tmp_path / version
        for name, content in sources_of(version).originals.items():
            file = folder / "python" / "sglang" / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
        (folder / "python/sglang/_version.py").write_text(f"__version__ = {version!r}\n")
        suite = folder / "test/registered/unit/layers/test_one.py"
        suite.parent.mkdir(parents=True)
        suite.write_text('register_cpu_ci(est_time=1, suite="base-a-test-cpu")\n')
        for words in (["init", "-q"], ["config", "user.name", "A"], ["config", "user.email", "a@b.example"], ["add", "-A", "-f"],
                      ["commit", "-qm", "first"]):  # fmt: skip
            subprocess.run(["git", "-C", folder, *words], check=True)
        return folder

    return make


UPSTREAM = "test/registered/unit/attention/test_dsa_prefill_auto.py"


def test_the_constant_is_sixty_lines_with_a_unit_test_that_is_green_and_notices_another_rule(checkout, tmp_path, said):
    folder = checkout("0.5.23")
    words = ["pr", TABLES_OF_H200, "--as", "constant", "--tree", folder, "--out", tmp_path / "pr"]
    answer = said(*words)
    assert (answer["rule"]["kv_per_new_token"], answer["rule"]["from_new_tokens"]) == (90, 100)
    assert max(answer["excess"].values()) < 0.001
    assert answer["changed_lines"] <= 60
    assert (tmp_path / "pr/tune_dsa_prefill.py").is_file()
    subprocess.run(["git", "-C", folder, "switch", "-q", "dsa-prefill-rule"], check=True)
    backend = folder / "python/sglang/srt/layers/attention/dsa_backend.py"
    ruff = [sys.executable, "-m", "ruff", "format", "--isolated", "--line-length", "88", "--check"]
    subprocess.run(
        [*ruff, backend, folder / "python/sglang/srt/arg_groups/overrides.py", folder / UPSTREAM], check=True
    )
    child = CHILD.with_name("constant_child.py")
    unit = [sys.executable, "-B", str(child), str(folder / "python"), str(folder / UPSTREAM)]
    assert subprocess.run(unit, check=False).returncode == 0
    text = backend.read_text()
    for right, wrong in (("total_q_tokens * 90", "total_q_tokens * 89"), ("total_q_tokens >= 100", "total_q_tokens > 100"),
                         ("total_q_tokens * 512", "total_q_tokens * 510"), ("if is_blackwell():", "if not is_blackwell():")):  # fmt: skip
        assert right in text
        backend.write_text(text.replace(right, wrong))
        assert subprocess.run(unit, check=False, capture_output=True).returncode == 1, wrong


@pytest.mark.parametrize("version", ["0.5.12", "0.5.13", "0.5.15", "0.5.16", "0.5.23"])
def test_a_server_with_the_constant_chooses_by_it_on_hopper_alone(version, checkout, tmp_path, said):
    folder = checkout(version)
    on_blackwell = {"device": "NVIDIA B200", "major": 10, "batches": [[64, 64 * 511], [64, 64 * 512]]}
    in_cp = {"cp": True, "args": {**ARGS, "enable_prefill_cp": True}}
    before = ask(folder / "python", on_blackwell, CHOSEN)
    said("pr", TABLES_OF_H200, "--as", "constant", "--tree", folder, "--out", tmp_path / "pr")
    subprocess.run(["git", "-C", folder, "switch", "-q", "dsa-prefill-rule"], check=True)
    batches = [[100, 8999], [100, 9000], [99, 5000], [4096, 4096]]
    answer, cp, *after = ask(folder / "python", {"batches": batches}, in_cp, on_blackwell, CHOSEN)
    assert answer["default"] == "flashmla_auto"
    sparse, kv = "flashmla_sparse", "flashmla_kv"
    assert [kernel for kernel, _ in answer["choices"][:4]] == [sparse, kv, kv, sparse]
    assert kernels(cp) == [kv] * 3
    assert after == before


def sources_of(version: str) -> Tree:
    """The wheel's, unpacked into memory."""
    wheel = fetch(version, place())
    if wheel is None:
        pytest.skip(f"no wheel of sglang {version}")
    with zipfile.ZipFile(wheel.file) as archive:
        names = [name for name in archive.namelist() if name.startswith("sglang/srt/") and name.endswith(".py")]
        files = {name.removeprefix("sglang/"): archive.read(name) for name in names}
    return Tree(Path(wheel.file.name), parse_version(version), None, files)


def refuses_hisparse(folder, tmp_path, capsys):
    rule = {"form": "buffer", "device_buffer_size": 6144, "host_to_device_ratio": 8}
    words = ["emit", table(tmp_path, "hisparse", rule), "--as", "patch", "--runtime", folder, "--apply"]
    assert run([str(word) for word in words]) == 2
    assert "sglang 0.5.9 has no HiSparse" in capsys.readouterr().err
    assert not (folder / "sglang" / ".dsabench-patch.json").exists()
