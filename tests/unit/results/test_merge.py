"""Journals of several machines become one: nothing doubled, nothing lost, pairs stay pairs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from dsabench.cli.main import run
from dsabench.errors import BusyError, InputError
from dsabench.model.record import Failed, Measured, Metric, Record
from dsabench.results.journal import Journal, claim_folder, read_journal
from dsabench.results.merge import Merged, merge_journals
from dsabench.results.scores import pair_boots
from factories import make_failure, make_record, make_spec
from studies import STUDY

METRICS = {"output_throughput_tok_s": Metric(value=1.0, n=1)}


def folder_of(place: Path, *records: Record) -> Path:
    journal = Journal(place)
    for record in records:
        journal.append(record)
        name = None if isinstance(record.outcome, Failed) else record.outcome.samples
        if name is not None:
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            (place / name).write_text(f"samples of {record.boot}")
    return place


def measured(boot: str, **fields) -> Record:
    outcome = Measured(metrics=METRICS, samples="samples/one.parquet")
    return make_record(boot=boot, outcome=outcome, **fields)


def records_of(folder: Path) -> tuple[Record, ...]:
    contents = read_journal(folder / "journal.jsonl")
    assert contents.problems == ()
    return contents.records


def test_what_is_known_is_not_added_again_and_samples_go_with_their_records(tmp_path: Path) -> None:
    a = folder_of(tmp_path / "a", measured("a-0", minute=0), measured("a-1", minute=1, occasion=1))
    b = folder_of(tmp_path / "b", measured("b-0", minute=2))
    into = tmp_path / "all"
    assert merge_journals([a, b / "journal.jsonl"], into) == Merged(added=3, samples=3)
    found = records_of(into)
    assert [(one.boot, one.occasion) for one in found] == [("a-0", 0), ("a-1", 1), ("b-0", 2)]
    for one in found:
        assert isinstance(one.outcome, Measured)
        assert one.outcome.samples is not None
        # Of the one name that all three have, the last of its folder was kept there.
        assert (into / one.outcome.samples).read_text() == f"samples of {'a-1' if one.boot[0] == 'a' else 'b-0'}"
    before = (into / "journal.jsonl").read_bytes()
    assert merge_journals([b, a], into) == Merged(known=3)
    assert (into / "journal.jsonl").read_bytes() == before
    assert len(records_of(a)) == 2


def test_a_copy_that_went_on_adds_what_is_new_alone(tmp_path: Path) -> None:
    first = measured("a-0", minute=0)
    a = folder_of(tmp_path / "a", first)
    b = folder_of(tmp_path / "b", first, measured("b-1", minute=3, occasion=1))
    assert merge_journals([b], a) == Merged(added=1, known=1, samples=1)
    assert [one.boot for one in records_of(a)] == ["a-0", "b-1"]


def test_a_retry_stays_behind_its_fault(tmp_path: Path) -> None:
    """Of a trial that has occasions 0 and 7 here, 0 and 1 of elsewhere become 8 and 9."""
    into = folder_of(tmp_path / "into", measured("i-0", minute=0), measured("i-7", minute=1, occasion=7))
    fault = make_record(boot="b-0", outcome=make_failure(transient=True), minute=2)
    b = folder_of(tmp_path / "b", fault, measured("b-1", minute=3, occasion=1))
    merge_journals([b], into)
    assert [(one.boot, one.occasion) for one in records_of(into)][2:] == [("b-0", 8), ("b-1", 9)]


def test_pairs_of_two_confirmations_stay_pairs(tmp_path: Path) -> None:
    sides = (make_spec(), make_spec(chunked_prefill_size=64))
    folders = [
        folder_of(
            tmp_path / machine,
            *(
                measured(f"{machine}-{side}-{turn}", spec=spec, phase="confirm", occasion=turn, minute=10 * turn + side)
                .model_copy(update={"turn": turn})
                for turn in range(2)
                for side, spec in enumerate(sides)
            ),
        )
        for machine in ("a", "b")
    ]  # fmt: skip
    merge_journals(folders, tmp_path / "all")
    found = records_of(tmp_path / "all")
    base, candidate = ([one for one in found if one.trial.runtime == spec] for spec in sides)
    assert sorted(one.turn for one in base) == [0, 1, 2, 3]
    paired = pair_boots(base, candidate)
    assert len(paired.pairs) == 4
    assert {(one.boot[0], other.boot[0]) for one, other in paired.pairs} == {("a", "a"), ("b", "b")}
    assert all(one.boot[-1] == other.boot[-1] for one, other in paired.pairs)


def test_samples_that_are_gone_are_counted_and_packed_ones_stay_packed(tmp_path: Path) -> None:
    a = folder_of(tmp_path / "a", measured("a-0"))
    (a / "samples/one.parquet").rename(a / "samples/one.parquet.gz")
    assert merge_journals([a], tmp_path / "packed").samples == 1
    assert (tmp_path / "packed/samples/one.parquet.gz").is_file()
    (a / "samples/one.parquet.gz").unlink()
    assert merge_journals([a], tmp_path / "gone") == Merged(added=1, without_samples=1)
    assert records_of(tmp_path / "gone") == records_of(a)


@pytest.mark.parametrize("name", ["../outside", "/outside", "samples/../../outside"])
def test_a_journal_that_names_files_elsewhere_is_refused(tmp_path: Path, name: str) -> None:
    outside = make_record(outcome=Measured(metrics=METRICS, samples=name))
    Journal(tmp_path / "a").append(outside)
    with pytest.raises(InputError, match="names a file outside of this folder"):
        merge_journals([tmp_path / "a"], tmp_path / "into")


def test_damaged_lines_stay_behind_and_are_told(tmp_path: Path, capsys) -> None:
    a = folder_of(tmp_path / "a", measured("a-0"))
    with (a / "journal.jsonl").open("a") as file:
        file.write("nonsense\n")
    assert run(["results", "merge", str(a), "--into", str(tmp_path / "all"), "--json"]) == 0
    said = capsys.readouterr()
    assert json.loads(said.out)["added"] == 1
    assert "journal.jsonl:2: not JSON; skipped" in said.err
    assert run(["results", "merge", str(a), "--into", str(tmp_path / "all")]) == 0
    assert "0 records added, 1 there already; samples of 0 copied" in capsys.readouterr().out


def test_what_cannot_be_merged_is_one_line(tmp_path: Path) -> None:
    a = folder_of(tmp_path / "a", measured("a-0"))
    with pytest.raises(InputError, match="no journal there"):
        merge_journals([tmp_path / "nothing"], tmp_path / "all")
    with pytest.raises(InputError, match="is both a source and the target"):
        merge_journals([a], a)
    with claim_folder(tmp_path / "used"), pytest.raises(BusyError, match="another run"):
        merge_journals([a], tmp_path / "used")


@pytest.mark.slow
def test_two_workers_of_a_study_become_one_that_goes_on(tmp_path: Path) -> None:
    """Real sweeps of two folders, each cut short; the merged one measures what both lack and concludes."""
    config = tmp_path / "study.yaml"
    config.write_text(STUDY.replace("max_trials: 6, confirm_boots: 2", "confirm_boots: 0"))

    def dsabench(*words: str) -> str:
        command = [sys.executable, "-m", "dsabench", *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False, cwd=tmp_path)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    for name, trials in (("a", "4"), ("b", "2")):
        dsabench("sweep", "study.yaml", "--results", name, "--max-trials", trials)
    merged = json.loads(dsabench("results", "merge", "a", "b", "--into", "all", "--json"))
    assert merged["added"] == 6
    whole = json.loads(dsabench("sweep", "study.yaml", "--results", "all", "--json"))
    assert whole["measured_now"] == 4  # of four settings under two workloads, two settings
    assert len({record.id for record in records_of(tmp_path / "all")}) == 8
    assert dsabench("results", "show", "latest", "--results", "all")
