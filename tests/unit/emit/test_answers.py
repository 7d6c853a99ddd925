"""What a program gets from `dsabench emit … --as patch --json`, whatever it was given."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from dsabench.emit.manifest import FILE_NAME
from dsabench.emit.tables import write_table
from program import dsabench
from unit.emit.made import made_table, made_tree


def emit(
    table: Path | str, package: Path | str, *words: str, within: Sequence[str] = (), **pipes
) -> subprocess.CompletedProcess[str]:
    line = ["emit", str(table), "--as", "patch", "--runtime", str(package), *words]
    if not within and not pipes:
        return dsabench(*line)
    command = [*within, sys.executable, "-m", "dsabench", *line]
    return subprocess.run(
        command, text=True, check=False, **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **pipes}
    )


def refused(done: subprocess.CompletedProcess[str]) -> str:
    """The reason, in the document and in the line for people alike."""
    reason = json.loads(done.stdout)["reason"]
    assert (done.returncode, done.stderr) == (2, f"error: {reason}\n")
    return reason


def test_a_refusal_is_one_document_too(tmp_path):
    package, table = made_tree(tmp_path), write_table(tmp_path / "tables", made_table())
    for action in ("--check", "--apply", "--revert", "--diff"):
        assert refused(emit(table, tmp_path / "none", action, "--json")).endswith("none: no such folder")
    simulated = write_table(tmp_path / "other", made_table(evidence={"label": "simulated"}))
    assert "simulated" in refused(emit(simulated, package, "--apply", "--json"))
    link = tmp_path / "itself,x.json"
    link.symlink_to(link)
    assert refused(emit(link, package, "--apply", "--json")).endswith(os.strerror(errno.ELOOP))


def test_a_check_that_ends_with_2_says_why(tmp_path):
    package, table = made_tree(tmp_path), write_table(tmp_path / "tables", made_table())
    assert emit(table, package, "--apply", "--json").returncode == 0
    file = package / "srt/server_args.py"
    file.write_text(file.read_text() + "# mine\n")
    done = emit(table, package, "--check", "--json")
    said = json.loads(done.stdout)
    assert (done.returncode, said["state"]) == (2, "changed since")
    assert "srt/server_args.py" in said["reason"]


@pytest.mark.parametrize("damage", ["AAAA", "é", "*"])
def test_a_record_whose_contents_cannot_be_restored_is_named_with_the_way_out(tmp_path, damage):
    package, table = made_tree(tmp_path), write_table(tmp_path / "tables", made_table())
    assert emit(table, package, "--apply", "--json").returncode == 0
    record = package / FILE_NAME
    kept = json.loads(record.read_text())
    change = next(each for each in kept["changes"] if each["before"])
    change["before"] = damage + change["before"][len(damage) :]
    record.write_text(json.dumps(kept))
    for action in ("--check", "--apply", "--revert"):
        assert "install sglang anew" in refused(emit(table, package, action, "--json"))


@pytest.mark.parametrize("words", ["check none.json --json", "pr none.json --runtime none --json"])
def test_a_refusal_of_the_other_two_is_one_document_too(tmp_path, words):
    assert "none.json" in refused(dsabench("emit", *words.split(), cwd=tmp_path))


def test_a_folder_whose_name_is_no_text(tmp_path):
    folder = os.fsdecode(os.fsencode(tmp_path) + b"/\xff")
    package, table = made_tree(Path(folder)), write_table(tmp_path / "tables", made_table())
    for action, state in (("--apply", "applied"), ("--check", "applied"), ("--revert", "clean")):
        done = emit(table, package, action, "--json")
        assert (done.returncode, json.loads(done.stdout)["state"]) == (0, state)


def test_a_file_in_another_encoding_is_refused_and_stays(tmp_path):
    package, table = made_tree(tmp_path), write_table(tmp_path / "tables", made_table())
    file = package / "srt/server_args.py"
    before = b"# -*- coding: latin-1 -*-\n# \xe9\n" + file.read_bytes()
    file.write_bytes(before)
    for action in ("--check", "--diff", "--apply"):
        assert "server_args.py: not changed" in refused(emit(table, package, action, "--json"))
    assert file.read_bytes() == before


def test_what_the_file_system_refuses_is_one_line_and_no_failed_gate(tmp_path):
    package, table = made_tree(tmp_path), write_table(tmp_path / "tables", made_table())
    for done in (emit("a" * 300, package, "--check"), emit(table, "a" * 300, "--check")):
        assert (done.returncode, done.stderr) == (2, f"error: {'a' * 300}: {os.strerror(errno.ENAMETOOLONG)}\n")
    with Path("/dev/full").open("w") as full:
        done = emit(table, package, "--check", "--json", stdout=full)
    assert (done.returncode, done.stderr) == (3, f"error: the output cannot be written: {os.strerror(errno.ENOSPC)}\n")


READ_ONLY = 'mount --bind "$0" "$0" && mount -o remount,ro,bind "$0" && exec "$@"'
"""In mounts of its own, which end with the command."""


def may_mount(folder: Path) -> bool:
    words = ["unshare", "--mount", "--map-root-user", "sh", "-c", READ_ONLY, str(folder), "true"]
    return (
        shutil.which("unshare") is not None and subprocess.run(words, check=False, capture_output=True).returncode == 0
    )


@pytest.mark.slow
def test_a_read_only_tree_is_refused_where_something_is_to_be_written(tmp_path):
    package, table = made_tree(tmp_path), write_table(tmp_path / "tables", made_table())
    if not may_mount(package):
        pytest.skip("this user may not mount in a namespace of its own")
    within = ("unshare", "--mount", "--map-root-user", "sh", "-c", READ_ONLY, str(package))
    why = "this user may not write here, or it is read-only"
    for action in ("--check", "--apply"):
        assert why in refused(emit(table, package, action, "--json", within=within))
    assert json.loads(emit(table, package, "--revert", "--json", within=within).stdout)["state"] == "clean"
    assert emit(table, package, "--apply").returncode == 0
    for action in ("--check", "--apply"):
        done = emit(table, package, action, "--json", within=within)
        assert (done.returncode, json.loads(done.stdout)["state"]) == (0, "applied")
    assert why in refused(emit(table, package, "--revert", "--json", within=within))
    assert emit(table, package, "--revert").returncode == 0
