"""Sweeps in which nothing can be measured, or nothing more be written: what is said, and how to go on."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from dsabench.cli.main import run
from dsabench.results.journal import read_journal
from studies import STUDY, write_study

KILLED = """#!/bin/sh
case "$*" in *launch_server*) kill -9 $$;; esac
exec {python} "$@"
"""


def doomed(folder: Path) -> str:
    """The study with an interpreter that is killed whenever it is to serve."""
    python = folder / "python"
    python.write_text(KILLED.format(python=sys.executable))
    python.chmod(0o755)
    study = yaml.safe_load(STUDY)
    study["runtime"]["launch"] = {"python": str(python)}
    return str(write_study(folder, yaml.safe_dump(study)))


@pytest.mark.slow
@pytest.mark.parametrize("max_boots", [5, 20])
def test_boots_that_are_all_killed_are_said_with_their_cause(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], max_boots: int
) -> None:
    words = ["sweep", doomed(tmp_path), "--results", str(tmp_path / "r"), "--max-boots", str(max_boots)]
    assert run(words) == 3
    said = " ".join(capsys.readouterr().out.split())
    boots = 1 if max_boots == 5 else 2  # one boot is tried once more, where the limit allows
    assert f"The default gave no number in {boots} boot" in said
    assert f"failed ({2 * boots} trials): the default in boot: killed: killed from outside by SIGKILL" in said
    assert "Only the default was measured" not in said
    # A table only where a setting was tried as often as it is allowed.
    assert ("by setting" in said) is (max_boots == 20)
    assert ("nothing can be compared with it" in said) is (max_boots == 20)
    records = read_journal(tmp_path / "r/journal.jsonl").records
    assert len({record.trial.runtime.id for record in records}) == 1, "no other setting was booted in vain"


def test_without_a_confirmation_the_rest_is_measured_whatever_the_default_does(tmp_path: Path) -> None:
    config = Path(doomed(tmp_path))
    study = yaml.safe_load(config.read_text())
    study["budget"]["confirm_boots"] = 0
    config.write_text(yaml.safe_dump(study))
    assert run(["sweep", str(config), "--results", str(tmp_path / "r"), "--max-trials", "4"]) == 3
    records = read_journal(tmp_path / "r/journal.jsonl").records
    assert len({record.trial.runtime.id for record in records}) == 2


def test_a_copy_has_what_failed_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["sweep", doomed(tmp_path), "--results", str(tmp_path / "r"), "--max-boots", "5"]
    assert run([*words, "--copy-to", "nowhere://copy"]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert not (tmp_path / "r").exists(), "refused before anything is started"
    assert run([*words, "--copy-to", f"file://{tmp_path}/copy"]) == 3
    journal = (tmp_path / "r/journal.jsonl").read_bytes()
    assert journal
    assert (tmp_path / "copy/journal.jsonl").read_bytes() == journal


LIMITED = """
import os, resource, sys
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]),) * 2)
os.execv(sys.executable, [sys.executable, "-m", "dsabench", *sys.argv[2:]])
"""


@pytest.mark.slow
def test_a_full_disk_says_what_is_lost_and_how_to_go_on(tmp_path: Path) -> None:
    results = tmp_path / "r"
    words = ["sweep", str(write_study(tmp_path)), "--results", str(results)]
    assert run([*words, "--max-trials", "1"]) == 0
    journal = results / "journal.jsonl"
    before = journal.read_bytes()
    # No file may grow by more than a part of the next record.
    limited = [sys.executable, "-c", LIMITED, str(len(before) + 1000), *words]
    ended = subprocess.run(limited, capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 3, ended.stderr
    error = ended.stderr.splitlines()[-1]
    assert "journal.jsonl: No space left on device: the record was not written" in error
    assert "what was just measured under workload two is lost, the records before it are whole" in error
    assert error.endswith(f". When that is fixed, continue with: dsabench {' '.join(words)}")
    assert journal.read_bytes() == before
    assert run([*words, "--max-trials", "2"]) == 0
    assert [record.trial.workload.name for record in read_journal(journal).records][:2] == ["one", "two"]
