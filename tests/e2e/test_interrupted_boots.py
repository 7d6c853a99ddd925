"""Sweeps that ended between two workloads of a boot, or lost a record: the budget pays for what is whole."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from dsabench.cli.main import run
from studies import EXACT, STUDY, write_study

pytestmark = pytest.mark.slow

DSABENCH = (sys.executable, "-m", "dsabench")
TRIALS = 14


def dsabench(*words: str | Path) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [*DSABENCH, *map(str, words)],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, done.stderr
    return done


@pytest.fixture
def told(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """The same within this process, for what measures nothing: what it printed to stdout."""

    def command(*words: str | Path) -> str:
        capsys.readouterr()
        assert run([*map(str, words)]) == 0, capsys.readouterr().err
        return capsys.readouterr().out

    return command


def lines_of(results: Path) -> list[dict]:
    return [json.loads(line) for line in (results / "journal.jsonl").read_text().splitlines()]


def check_complete(lines: list[dict], confirmed: int = 2) -> None:
    """Three settings searched under both workloads, both sides confirmed so often under both."""
    counts = Counter((line["phase"], line["id"]) for line in lines)
    assert sorted(counts.values()) == sorted([1] * 6 + [confirmed] * 4)
    assert sorted(line["phase"] for line in lines) == ["confirm"] * 4 * confirmed + ["search"] * 6


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """A study that ran to its end: (config, the lines of its journal)."""
    folder = tmp_path_factory.mktemp("finished")
    config = write_study(folder, EXACT)
    dsabench("sweep", config, "--results", folder / "results")
    check_complete(lines_of(folder / "results"))
    return config, (folder / "results" / "journal.jsonl").read_text().splitlines(keepends=True)


def without_a_key(line: str) -> str:
    """A whole line of JSON that is no record, with the trial and the occasion of one."""
    return json.dumps(json.loads(line) | {"duration_s": None}) + "\n"


DAMAGES: dict[str, tuple[Callable[[list[str]], list[str]], int]] = {
    "stopped in the search's last boot": (lambda lines: lines[:5], 9),
    "stopped in a confirming boot": (lambda lines: lines[:11], 3),
    "the last line is torn": (lambda lines: [*lines[:-1], lines[-1][:200]], 1),
    "a line of the confirmation is no record": (lambda lines: [*lines[:7], without_a_key(lines[7]), *lines[8:]], 1),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_what_is_missing_is_measured_and_nothing_else(finished, told, tmp_path: Path, damage: str) -> None:
    config, lines = finished
    change, lacking = DAMAGES[damage]
    journal = tmp_path / "journal.jsonl"
    journal.write_text("".join(change(lines)))
    if damage.startswith("stopped"):
        concluded = json.loads(told("sweep", config, "--results", tmp_path, "--conclude", "--json"))
        assert concluded["go_on"] is not None
    planned = json.loads(told("sweep", config, "--results", tmp_path, "--dry-run", "--json"))
    assert planned["left"]["trials"] == lacking
    resumed = json.loads(dsabench("sweep", config, "--results", tmp_path, "--json").stdout)
    assert (resumed["measured_now"], resumed["trials"], resumed["unconfirmed_boots"]) == (lacking, TRIALS, 0)
    assert len(resumed["candidates"]) == 3
    assert {(one["n_base"], one["n_candidate"]) for one in resumed["verdicts"]} == {(2, 2)}
    again = told("sweep", config, "--results", tmp_path)
    assert "Nothing to do" in again
    assert "left out" not in again


def interrupt_at(config: Path, results: Path, number: int, boot: str, *words: str) -> str:
    """Send the signal when that boot has recorded its first workload; returns what the sweep said."""
    sweep = subprocess.Popen(
        [*DSABENCH, "sweep", str(config), "--results", str(results), *words],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        stdin=subprocess.DEVNULL,
    )
    said = ""
    assert sweep.stderr is not None
    while "  one: " not in said.partition(f"boot {boot} ")[2]:
        line = sweep.stderr.readline()
        assert line, said
        said += line
    sweep.send_signal(number)
    said += sweep.communicate(timeout=60)[1]
    assert sweep.returncode in (130, -signal.SIGKILL)
    return said


SHORT = STUDY.replace("confirm_boots: 2", "max_boots: 5, confirm_boots: 1").replace(
    "num_prompts: 12, max_concurrency: 4", "num_prompts: 100, max_concurrency: 4"
)
"""Three boots of the search and two of the confirmation, and not one more; the second workload lasts long enough to be hit."""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_boot_that_a_signal_cut_is_repeated_under_its_own_number(tmp_path: Path, number: int) -> None:
    config, results = write_study(tmp_path, SHORT), tmp_path / "r"
    interrupt_at(config, results, number, "3/5")
    assert len(lines_of(results)) == 5
    said = interrupt_at(config, results, number, "5/5")
    assert said.count("boot 3/5 search") == 1
    done = dsabench("sweep", config, "--results", results)
    assert "boot 5/5 confirm" in done.stderr
    check_complete(lines_of(results), confirmed=1)


def test_another_round_that_was_interrupted_is_completed(finished, tmp_path: Path) -> None:
    config, lines = finished
    (tmp_path / "journal.jsonl").write_text("".join(lines))
    said = interrupt_at(config, tmp_path, signal.SIGINT, "3/7", "--again")
    assert "--again" not in said
    dsabench("sweep", config, "--results", tmp_path)
    check_complete([line for line in lines_of(tmp_path) if line["round"] == 1])


def test_a_round_that_no_record_was_written_of_is_begun_again(finished, tmp_path: Path) -> None:
    config, lines = finished
    (tmp_path / "journal.jsonl").write_text("".join(lines))
    sweep = subprocess.Popen(
        [*DSABENCH, "sweep", str(config), "--results", str(tmp_path), "--again"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        stdin=subprocess.DEVNULL,
    )
    assert sweep.stderr is not None
    assert "boot 1/7" in sweep.stderr.readline()
    sweep.send_signal(signal.SIGINT)
    assert f"dsabench sweep {config} --results {tmp_path} --again" in sweep.communicate(timeout=30)[1]
