from __future__ import annotations

import json
import math
import subprocess
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from dsabench.cli.main import run
from dsabench.machine import cpu_use
from dsabench.machine.cpu_use import warn_of_others
from dsabench.model.record import Measured
from dsabench.results.journal import Journal, read_journal
from studies import STUDY, write_study

pytestmark = pytest.mark.slow

QUICK = STUDY.replace("num_prompts: 12", "num_prompts: 10")


def told_of_others(monkeypatch: pytest.MonkeyPatch, *loads: str | None) -> None:
    """What the first loads say of other processes; the later ones had the cores alone. What this machine does beside is not asked."""
    said = iter(loads)
    monkeypatch.setattr("dsabench.study.trial.warn_of_others", lambda _: next(said, None))
    monkeypatch.setattr(cpu_use, "STEAL_WARN", math.inf)


def test_a_check_boots_compares_and_leaves_what_ci_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    config = str(write_study(tmp_path, QUICK))
    summary = tmp_path / "summary.md"
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    told_of_others(monkeypatch, warn_of_others(0.5))
    words = ["ci", config, "--against", config, "--results", str(tmp_path / "r"), "--boots", "3", "--effect", "1.0"]
    assert run([*words, "--junit", str(tmp_path / "junit.xml")]) == 0
    printed = capsys.readouterr().out
    assert "::notice title=dsabench study::" in printed or "::warning title=dsabench study::" in printed
    suite = ET.parse(tmp_path / "junit.xml").getroot().find("testsuite")
    assert suite is not None
    assert (suite.get("failures"), suite.get("errors")) == ("0", "0")
    assert "total" in summary.read_text() or "output_throughput_tok_s" in summary.read_text()

    # What is recorded counts: nothing is booted, and the same boots are the same answer. A boot that others disturbed was
    # booted once more.
    before = [(tmp_path / "r" / side / "journal.jsonl").read_bytes() for side in ("base", "candidate")]
    assert run([*words, "--json"]) == 0
    again = json.loads(capsys.readouterr().out)
    assert again["boots"] == 3
    assert [
        len({record.boot for record in read_journal(tmp_path / "r" / side / "journal.jsonl").records})
        for side in ("base", "candidate")
    ] == [4, 4]
    assert [(tmp_path / "r" / side / "journal.jsonl").read_bytes() for side in ("base", "candidate")] == before

    # The same boots as a recorded baseline, of which others disturbed all but one; it is judged in turns by their times.
    records = read_journal(tmp_path / "r" / "base" / "journal.jsonl").records
    alone, *others = dict.fromkeys(record.boot for record in records)
    for name, boots in (("both", {alone, *others}), ("one", {alone})):
        for record in (one for one in records if one.boot in boots):
            assert isinstance(record.outcome, Measured)
            warnings = () if record.boot == alone else (warn_of_others(0.5) or "",)
            told = record.outcome.model_copy(update={"warnings": warnings})
            Journal(tmp_path / name).append(record.model_copy(update={"outcome": told}))
    words = ["ci", config, "--no-run", "--results", str(tmp_path / "r" / "candidate"), "--json", "--baseline"]
    assert run([*words, str(tmp_path / "both")]) in {0, 1}
    said = json.loads(capsys.readouterr().out)
    assert said["disturbed"]["baseline"] == {"left_out": 0, "counted": len(others)}
    assert all(verdict["n_base"] >= 3 for verdict in said["verdicts"])
    assert f"{len(others)} of the baseline's boots counted all the same" in said["sentence"]
    assert said["interleaved"]
    assert run([*words, str(tmp_path / "one")]) == 2
    assert f"Boot both now: dsabench ci {config} --in-turns" in capsys.readouterr().err

    assert (
        run(["ci", config, "--no-run", "--results", str(tmp_path / "none"), "--baseline", str(tmp_path / "r" / "base")])
        == 3
    )
    assert "nothing is recorded" in capsys.readouterr().err
    assert run(["ci", config, "--baseline", "x", "--against", "y"]) == 2


def test_the_first_baseline_is_measured_committed_and_compared_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    config = str(write_study(tmp_path, QUICK))
    monkeypatch.chdir(tmp_path)
    told_of_others(monkeypatch)

    def git(*words: str) -> None:
        who = ("-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "init.defaultBranch=main")
        subprocess.run(["git", *who, *words], cwd=tmp_path, check=True, capture_output=True)

    git("init")
    assert run(["ci", config, "--boots", "3"]) == 2
    assert f"Measure the first baseline with: dsabench ci {config} --init" in capsys.readouterr().err
    assert not (tmp_path / "results").exists()

    assert run(["ci", config, "--init", "--boots", "3"]) == 0
    assert "git add results/ci/journal.jsonl && git commit" in capsys.readouterr().out
    assert len({record.boot for record in read_journal(tmp_path / "results/ci/journal.jsonl").records}) == 3
    git("add", "results/ci/journal.jsonl")
    git("commit", "-m", "Baseline")
    assert run(["ci", config, "--boots", "3", "--effect", "1.0"]) == 2
    assert "no two of its occasions are as far apart" in capsys.readouterr().err
    assert not (tmp_path / "results/local-ci").exists()  # refused before anything booted
    for turns in (["--in-turns"], ["--base-ref", "HEAD"]):
        words = ["ci", config, *turns, "--boots", "3", "--effect", "1.0", "--results", f"results/{turns[0][2:]}"]
        if turns == ["--base-ref", "HEAD"]:
            git("add", config)
            git("commit", "-m", "Config")
        assert run(words) == 0
        said = " ".join(capsys.readouterr().out.split())
        assert "3 boots in turns with " in said

    # The baseline against itself proves nothing.
    assert run(["ci", config, "--no-run", "--results", "results/ci", "--baseline", "results/ci"]) == 2
    assert "share 3 boots, so nothing can be compared" in capsys.readouterr().err
    assert run(["ci", config, "--init", "--no-run"]) == 2
    assert run(["ci", config, "--in-turns", "--base-ref", "HEAD"]) == 2
    assert "--base-ref and --in-turns exclude each other" in capsys.readouterr().err
    assert run(["ci", config, "--base-ref", "nowhere"]) == 2
    assert "nowhere: no such commit" in capsys.readouterr().err
