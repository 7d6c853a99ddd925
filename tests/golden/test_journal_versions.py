"""Journals of every schema version stay readable, and the ids in them stay what they are.

`journal_v1.jsonl` was written by the first version that had a journal: a measured trial, a confirmation and a failure
of the reference runtime. Never rewrite it; a new schema version adds a file.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from dsabench.model.environment import fingerprint
from dsabench.model.record import Failed, Measured
from dsabench.results.journal import read_journal

HERE = Path(__file__).parent


@pytest.mark.parametrize("path", sorted(HERE.glob("journal_v*.jsonl")), ids=lambda path: path.stem)
def test_every_record_is_read_and_keeps_its_id(path: Path) -> None:
    reading = read_journal(path)
    raw = [json.loads(line) for line in path.read_text().splitlines()]
    assert reading.problems == ()
    assert [record.id for record in reading.records] == [line["id"] for line in raw]
    for record, line in zip(reading.records, raw, strict=True):
        canonical = json.dumps(line["trial"], sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        assert record.trial.id == line["id"] == hashlib.sha256(canonical.encode()).hexdigest()
        environment = record.environment
        assert environment.fingerprint == fingerprint(environment.hardware, environment.runtime)
        assert json.loads(record.model_dump_json(exclude_none=True)) == line


def test_version_1_holds_all_kinds_of_records() -> None:
    records = read_journal(HERE / "journal_v1.jsonl").records
    assert {type(record.outcome) for record in records} == {Measured, Failed}
    assert {record.phase for record in records} == {"search", "confirm"}
