"""What a long study has read and found before is not read and found again, and is the same."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import pytest

from dsabench.config.specs import StudyConfig
from dsabench.model.environment import fingerprint
from dsabench.model.record import Failed, Record, RecordKey
from dsabench.results.journal import Journal
from dsabench.results.scores import scored_settings
from dsabench.results.study_records import StudyRecords
from dsabench.study.budget import trials_left
from dsabench.study.context import with_journal
from dsabench.study.forecast import estimate_cost
from dsabench.study.next_boot import interrupted, observations
from factories import ENVIRONMENT, make_failure, make_record
from studies import STUDY, Noting, load_study, make_context


def answers(records: StudyRecords, config: StudyConfig, folder: Path) -> tuple[object, ...]:
    """What a study asks of its records before each boot."""
    limits = make_context(config, folder).limits
    return (
        records.searched(0),
        scored_settings(records, 0),
        observations(records, 0),
        interrupted(records, 0),
        records.lacking(0),
        trials_left(records, limits),
        estimate_cost(records),
        [records.boots(round_, phase) for round_ in (0, 1) for phase in (None, "search", "confirm")],
        records.latest_round,
    )


def some_records(config: StudyConfig, seed: int) -> Iterator[Record]:
    """Of few settings: measured, failed for good or for now, refused, in several boots, phases and rounds."""
    rng, occasions = random.Random(seed), dict[str, int]()
    specs = [config.default, *(config.spec({"chunked_prefill_size": size}) for size in (128, 256))]
    for minute in range(40):
        spec, workload = rng.choice(specs), rng.choice(config.workloads)
        outcome = rng.choice([None, None, make_failure(), make_failure(transient=True), REFUSAL])
        record = make_record(
            spec=spec,
            workload=workload,
            phase=rng.choice(["search", "search", "confirm"]),
            round_=rng.choice([0, 0, 1]),
            boot=f"boot {minute // rng.choice([1, 2])}",
            minute=minute + rng.choice([0, 0, -3]),
            value=rng.uniform(50, 150),
            outcome=outcome,
        )
        occasions[record.id] = occasions.get(record.id, -1) + 1
        yield record.model_copy(update={"occasion": occasions[record.id]})


REFUSAL = Failed(stage="plan", fault="illegal_config", message="it would fail", log_tail="")


@pytest.mark.parametrize("max_trials", [4, 7, 100])
@pytest.mark.parametrize("seed", range(10))
def test_records_that_grow_tell_what_fresh_ones_do(tmp_path: Path, seed: int, max_trials: int) -> None:
    config = load_study(tmp_path, STUDY.replace("max_trials: 6", f"max_trials: {max_trials}"))
    growing, seen = StudyRecords(config, ENVIRONMENT.fingerprint, ()), list[Record]()
    for record in some_records(config, seed):
        growing.beside(()).add(record)
        seen.append(record)
        fresh = StudyRecords(config, ENVIRONMENT.fingerprint, seen)
        assert answers(growing, config, tmp_path) == answers(fresh, config, tmp_path)
        assert_in_order(growing, seen)


def assert_in_order(records: StudyRecords, seen: Iterable[Record]) -> None:
    """The searched settings, and those with a score, stand in the order in which they were first measured."""
    first: dict[str, datetime] = {}
    for record in seen:
        if record.phase == "search" and record.round == 0:
            spec_id = record.trial.runtime.id
            first[spec_id] = min(record.started_at, first.get(spec_id, record.started_at))
    for found in (records.searched(0), [one.spec for one in scored_settings(records, 0)]):
        starts = [first[spec.id] for spec in found]
        assert starts == sorted(starts)
    assert {spec.id for spec in records.searched(0)} == first.keys()


def keys(records: Iterable[Record]) -> set[RecordKey]:
    return {record.key for record in records}


def test_a_context_reads_on_where_it_was(tmp_path: Path) -> None:
    config = load_study(tmp_path)
    context, journal, written = make_context(config, tmp_path), Journal(tmp_path), list[Record]()
    for record in some_records(config, 0):
        journal.append(record)
        written.append(record)
        assert keys(context.records().records) == keys(written)
    journal.path.write_bytes(b"".join(journal.path.read_bytes().splitlines(keepends=True)[:3]))
    assert keys(context.records().records) == keys(written[:3]), "the journal became shorter"


def test_records_of_another_environment_are_told(tmp_path: Path) -> None:
    config, noting = load_study(tmp_path), Noting()
    context = make_context(config, tmp_path, list(some_records(config, 0)))
    with_journal(context, noting)
    assert not noting.notes

    larger = ENVIRONMENT.hardware.model_copy(update={"memory_mib": 2048})
    ours = ENVIRONMENT.model_copy(update={"hardware": larger, "fingerprint": fingerprint(larger, ENVIRONMENT.runtime)})
    other_runtime = ENVIRONMENT.runtime.model_copy(update={"version": "0.2.0"})
    newer = ENVIRONMENT.model_copy(
        update={"runtime": other_runtime, "fingerprint": fingerprint(ENVIRONMENT.hardware, other_runtime)}
    )
    for environment, change in (
        (ours, "hardware.memory_mib 1024, then 2048"),
        (newer, "runtime.version 0.1.0, then 0.2.0"),
    ):
        noting.notes.clear()
        with_journal(replace(context, environment=environment), noting)
        assert noting.notes == [
            f"note: the records of this study are of another environment ({change}), so everything is measured anew"
        ]


def test_a_changed_value_keeps_nothing_of_the_old_one(tmp_path: Path) -> None:
    config = load_study(tmp_path)
    spec, default = config.default, config.default.id
    other = spec.model_copy(update={"knobs": {**spec.knobs, "chunked_prefill_size": 64}})
    assert other.id != spec.id == default
    model = config.runtime.model_copy(update={"model": "small"})
    assert config.model_copy(update={"runtime": model}).default.model == "small"
    assert spec.model_copy() == spec
    assert spec.model_copy().id == spec.id
    assert "id" not in spec.model_dump()
    assert type(spec).model_validate(dict(spec)) == spec
