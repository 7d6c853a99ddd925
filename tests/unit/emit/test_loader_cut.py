"""The loader cut to kinds of table: it is Python without leftovers, and its own unit test passes on it."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from pathlib import Path

import pytest

from dsabench.emit.loader import KINDS, is_untouched, kinds_read, loader_of, loader_test_of, with_variable
from dsabench.emit.payload import payload
from dsabench.emit.touch import LOADER

SOME = [kinds for count in (1, 2, 3) for kinds in itertools.combinations(KINDS, count)]
ENVIRON = b"""import os


class EnvStr:
    def __init__(self, default):
        self.default = default

    def __set_name__(self, owner, name):
        self.name = name

    def get(self):
        return os.environ.get(self.name, self.default)


class Envs:
    SGLANG_DSA_TOPK_FLASHINFER_TIE_BREAK = EnvStr(None)
    SGLANG_DSA_PREFILL_DENSE_ATTN_KV_LEN_THRESHOLD = EnvStr(2048)


envs = Envs()
"""


RULES = {
    "flashmla_auto": {"form": "constant", "kernel": "flashmla_kv"},
    "mha_threshold": {"max_tokens": 1},
    "hisparse": {"device_buffer_size": 1, "host_to_device_ratio": 1},
}
WRONG = {
    "flashmla_auto": ("kv_tokens >= new_tokens", "kv_tokens > new_tokens"),
    "mha_threshold": ('"max_tokens"', '"least_tokens"'),
    "hisparse": ("{**tuned, **given}", "{**given, **tuned}"),
}


def unit_test(
    folder: Path, kinds: tuple[str, ...], loader: str, environ: bytes = ENVIRON
) -> subprocess.CompletedProcess[str]:
    """Run the unit test that comes with `kinds`, in a runtime that has this loader and one table."""
    place = "sglang/srt/layers/attention/dsa_tuned"
    table = {"runtime": "sglang", "kind": kinds[0], "rule": RULES[kinds[0]]}
    files = {
        f"{place}.py": loader.encode(),
        f"{place}_configs/{kinds[0]},one.json": json.dumps(table).encode(),
        "sglang/srt/environ.py": environ,
        "sglang/test/ci/ci_register.py": b"def register_cpu_ci(**_): pass\n",
        "test_dsa_tuned.py": loader_test_of(kinds).replace("SUITE", "suite").encode(),
    }
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    env = {"PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "test_dsa_tuned.py"]
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("kinds", SOME, ids="+".join)
@pytest.mark.parametrize("registered", [False, True])
def test_its_own_unit_test_passes_on_it(kinds, registered, tmp_path) -> None:
    loader, environ = loader_of(kinds), ENVIRON
    if registered:
        declared = with_variable(ENVIRON, loader.encode())
        environ, loader = declared["srt/environ.py"], declared[LOADER].decode()
        assert "os.environ" not in loader
    ran = unit_test(tmp_path, kinds, loader, environ)
    assert ran.returncode == 0, ran.stderr
    assert int(ran.stderr.partition("Ran ")[2].split()[0]) >= 2
    ruff = [sys.executable, "-m", "ruff", "check", "--isolated", "--select", "F,I", "--no-cache", "."]
    found = subprocess.run(ruff, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "F401" not in found.stdout + found.stderr
    assert "F841" not in found.stdout


@pytest.mark.parametrize("kind", KINDS)
def test_its_own_unit_test_notices_a_loader_that_is_wrong(kind, tmp_path) -> None:
    loader, (right, wrong) = loader_of((kind,)), WRONG[kind]
    assert right in loader
    ran = unit_test(tmp_path, (kind,), loader.replace(right, wrong))
    assert ran.returncode == 1
    assert "FAILED" in ran.stderr


def test_all_kinds_are_the_whole_loader() -> None:
    assert loader_of(KINDS) == payload("dsa_tuned.py")
    assert loader_test_of(KINDS) == payload("upstream_test.txt")
    lines = {kinds: len(loader_of(kinds).splitlines()) for kinds in SOME}
    assert lines["flashmla_auto",] < lines[KINDS] - 50


@pytest.mark.parametrize("kinds", SOME, ids="+".join)
def test_a_loader_says_what_it_reads_and_whether_somebody_changed_it(kinds) -> None:
    loader = loader_of(kinds)
    assert kinds_read(loader.encode()) == set(kinds)
    assert is_untouched(loader.encode())
    assert is_untouched(with_variable(ENVIRON, loader.encode())[LOADER])
    assert not is_untouched(loader.encode() + b"\n")


def test_a_registry_of_another_form_is_left_alone() -> None:
    assert with_variable(None, b"") == {}
    assert with_variable(b"class Envs:\n    pass\n", b"") == {}
    once = with_variable(ENVIRON, loader_of(KINDS).encode())
    again = with_variable(once["srt/environ.py"], loader_of(KINDS).encode())
    assert again == {LOADER: once[LOADER]}, "a variable is declared once"
