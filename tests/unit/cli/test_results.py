"""`dsabench results list` and `show`, as a reader of a terminal of 80 columns meets them."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import pytest

from dsabench.cli.main import run
from dsabench.model.record import Measured, Metric, Phase
from dsabench.results.journal import Journal
from factories import START, make_record

NAMES = ("steady.output_throughput_tok_s", "itl_ms.p95", "ttft_from_schedule_ms.p50")


def write(folder: Path, values: Sequence[float], phases: Sequence[Phase]) -> str:
    journal = Journal(folder)
    for number, (value, phase) in enumerate(zip(values, phases, strict=True)):
        metrics = {name: Metric(value=value, n=1600, ci_low=0.9 * value, ci_high=1.1 * value) for name in NAMES}
        record = make_record(occasion=number, minute=number, phase=phase, outcome=Measured(metrics=metrics))
        journal.append(record)
    return record.id[:10]


def show(words: Sequence[str], capsys: pytest.CaptureFixture[str], code: int = 0) -> str:
    assert run(["results", *words]) == code
    return "".join(capsys.readouterr())


@pytest.fixture(autouse=True)
def eighty_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")


def test_records_of_several_folders_are_told_apart(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for arm in ("shipped", "patched"):
        trial = write(tmp_path / "auto" / arm, [100.0], ["search"])
    listed = show(["list", "--results", str(tmp_path)], capsys)
    assert [line for line in listed.splitlines() if line.startswith("test")] == [
        "test in auto/patched: no knobs",
        "test in auto/shipped: no knobs",
    ]
    assert " in " not in show(["list", "--results", str(tmp_path / "auto" / "patched")], capsys)
    said = show(["show", f"{trial}:0", "--results", str(tmp_path)], capsys, code=2)
    names = [f"{trial}:0 --results {tmp_path / 'auto' / arm}" for arm in ("patched", "shipped")]
    assert said == f"error: {trial}:0 means 2 records: {', '.join(names)}\n"
    assert f"{trial}" in show(["show", *names[0].split()], capsys)


def test_a_mean_of_what_is_never_negative_has_no_negative_bound(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trial = write(tmp_path, [4.0, 10.25, 16.5], ["search"] * 3)
    rows = [
        line
        for line in show(["show", f"{trial}:0", "--results", str(tmp_path)], capsys).splitlines()
        if "10.25" in line
    ]
    assert len(rows) == len(NAMES)
    assert all(row.endswith("    0 to 25.78") for row in rows)


def test_nothing_is_clipped_at_80_columns(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trial = write(tmp_path, [0.006012, 0.006499, 0.006123], ["search"] * 3)
    shown = show(["show", f"{trial}:0", "--results", str(tmp_path)], capsys)
    assert "…" not in shown
    assert max(map(len, shown.splitlines())) <= 80
    assert "0.005411 to 0.006613" in shown
    assert "0.006211  0.005577 to 0.006845" in shown
    assert shown.split().count("steady.output_throughput_tok_s") == 2  # too wide for one table, so there are two


def test_it_says_which_boots_the_mean_is_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trial = write(tmp_path, [100.0, 101.0, 102.0], ["search", "confirm", "confirm"])
    words = "are over 2 boots of the confirmation"
    found = " ".join(show(["show", f"{trial}:0", "--results", str(tmp_path)], capsys).split())
    assert f"{words}; this record, of the search, is not among them" in found
    found = " ".join(show(["show", f"{trial}:1", "--results", str(tmp_path)], capsys).split())
    assert words in found
    assert "not among them" not in found


def test_another_folders_boots_are_no_repeats(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for arm, value in (("shipped", 100.0), ("patched", 200.0)):
        trial = write(tmp_path / arm, [value, value], ["search", "search"])
    shown = show(["show", f"{trial}:0", "--results", str(tmp_path / "patched")], capsys)
    assert "over 2 boots of this trial" in " ".join(shown.split())


def git(*words: str, cwd: Path) -> None:
    identity = ("-c", "user.name=tests", "-c", "user.email=tests@example.org", "-c", "commit.gpgsign=false")
    subprocess.run(("git", *identity, *words), cwd=cwd, check=True, capture_output=True)


def test_ones_own_records_go_before_those_that_are_committed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    results = tmp_path / "results"
    write(results / "evidence", [1.0, 2.0], ["search", "confirm"])
    for words in (("init", "-q"), ("add", "-A"), ("commit", "-qm", "evidence")):
        git(*words, cwd=tmp_path)
    monkeypatch.chdir(tmp_path)
    assert show(["list"], capsys).count(":0 ") == 1, "there is nothing else"
    trial = write(results / "mine", [3.0], ["search"])
    listed = show(["list"], capsys)
    assert "mine" in listed or listed.count(":0") == 1
    assert ":1 " not in listed
    assert show(["list", "--all"], capsys).count(trial) == 3
    assert show(["list", "--results", "results/evidence"], capsys).count(trial) == 2
    shown = show(["show", f"{trial}:0"], capsys)
    assert "results/mine/journal.jsonl" in shown
    assert "results/mine/journal.jsonl" in show(["show", "latest"], capsys)
    assert f"{trial}" in show(["show", f"{trial}:1"], capsys), "of the evidence, as no own record has that occasion"


def test_the_newest_study_comes_first_and_no_more_than_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    older, newer = Journal(tmp_path / "older"), Journal(tmp_path / "newer")
    for number in range(50):
        record = make_record(occasion=number, minute=number)
        older.append(record.model_copy(update={"study": "older"}))
    for number in range(3):
        record = make_record(occasion=number, minute=100 + number)
        newer.append(record.model_copy(update={"study": "newer"}))
    place = ("--results", str(tmp_path))
    listed = show(["list", *place], capsys).splitlines()
    assert listed[0].startswith("newer in newer")
    assert [line for line in listed if line.startswith("older")] == ["older in older: no knobs"]
    assert listed[-1] == "the newest 40 records; --limit N or --all shows more"
    assert sum(":" in line and line.startswith("  ") for line in listed) == 40
    assert len(show(["list", *place, "--all"], capsys).splitlines()) == 53 + 2
    two = [json.loads(line) for line in show(["list", *place, "--json", "--limit", "2"], capsys).splitlines()]
    assert [(one["study"], one["occasion"]) for one in two] == [("newer", 2), ("newer", 1)]
    assert len(show(["list", *place, "--json"], capsys).splitlines()) == 53
    since = (START + timedelta(minutes=101)).isoformat()
    assert len(show(["list", *place, "--json", "--since", since], capsys).splitlines()) == 2
    assert show(["list", *place, "--since", "1h"], capsys) == "no records\n"
    assert "is not a duration" in show(["list", *place, "--since", "yesterday"], capsys, code=2)
    assert len(show(["list", *place, "--json", "--study", "older", "--limit", "60"], capsys).splitlines()) == 50


def test_of_a_large_journal_only_the_end_is_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = Journal(tmp_path)
    for number in range(30):
        journal.append(make_record(occasion=number, minute=number))
    whole = show(["list", "--results", str(tmp_path), "--json", "--limit", "7"], capsys)
    with journal.path.open("ab") as file:
        file.write(b'{"torn')
    monkeypatch.setattr("dsabench.results.journal.WHOLE_MAX", 0)
    ended = show(["list", "--results", str(tmp_path), "--json", "--limit", "7"], capsys)
    *records, warning = ended.splitlines()
    assert "\n".join(records) + "\n" == whole
    assert warning == f"warning: {journal.path}: not JSON; skipped"
