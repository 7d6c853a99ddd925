from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from dsabench.cli.main import run
from studies import STUDY, write_study

QUICK = STUDY.replace("num_prompts: 12", "num_prompts: 10")


def test_a_check_boots_compares_and_leaves_what_ci_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    config = str(write_study(tmp_path, QUICK))
    summary = tmp_path / "summary.md"
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    words = ["ci", config, "--against", config, "--results", str(tmp_path / "r"), "--boots", "2", "--effect", "1.0"]
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
    assert 2 <= again["boots"] <= 4
    assert [(tmp_path / "r" / side / "journal.jsonl").read_bytes() for side in ("base", "candidate")] == before

    assert (
        run(["ci", config, "--no-run", "--results", str(tmp_path / "none"), "--baseline", str(tmp_path / "r" / "base")])
        == 3
    )
    assert "nothing is recorded" in capsys.readouterr().err
    assert run(["ci", config, "--baseline", "x", "--against", "y"]) == 2
