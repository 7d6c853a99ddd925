from __future__ import annotations

import hashlib
import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from pydantic import BaseModel

from dsabench.errors import BusyError, InputError, StoreError
from dsabench.model.bottleneck import Bottleneck
from dsabench.model.capacity import LoadProbe
from dsabench.model.record import Measured, Metric, Record
from dsabench.results.journal import Journal, claim_folder, newest_records, read_journal
from dsabench.results.places import find_journals
from factories import make_failure, make_record, make_spec


def test_round_trip(tmp_path: Path) -> None:
    records = [make_record(occasion=0), make_record(occasion=1), make_record(outcome=make_failure(), occasion=2)]
    journal = Journal(tmp_path)
    for record in records:
        journal.append(record)
    reading = Journal(tmp_path).read()
    assert list(reading.records) == records
    assert reading.problems == ()


def test_what_could_not_be_told_comes_back_too(tmp_path: Path) -> None:
    outcome = Measured(
        metrics={"output_throughput_tok_s": Metric(value=1.0, n=1)},
        bottleneck=Bottleneck(line="requests in 2 of 3 looks", between=("kv_cache", "prefill")),
        probes=(LoadProbe(load=16, fault="request_timeout"), LoadProbe(load=4, attainment=0.95)),
    )
    journal = Journal(tmp_path)
    journal.append(make_record(outcome=outcome))
    (record,) = Journal(tmp_path).read().records
    assert record.outcome == outcome


def test_no_field_of_a_record_may_be_none_and_has_to_be_there() -> None:
    """A record is written without what is None: such a field would make it unreadable."""
    seen, left = set[type[BaseModel]](), [Record]
    while left:
        model = left.pop()
        for name, field in () if model in seen else model.model_fields.items():
            parts = list(_parts(field.annotation))
            assert type(None) not in get_args(field.annotation) or not field.is_required(), f"{model.__name__}.{name}"
            left += [part for part in parts if isinstance(part, type) and issubclass(part, BaseModel)]
        seen.add(model)
    assert {Bottleneck, LoadProbe, Metric} <= seen


def _parts(annotation: object) -> Iterator[object]:
    """The annotation, and all types inside it."""
    yield annotation
    for part in get_args(annotation):
        yield from _parts(part)


def test_a_missing_journal_is_empty(tmp_path: Path) -> None:
    assert Journal(tmp_path).read().records == ()


def test_the_line_holds_what_automation_relies_on(tmp_path: Path) -> None:
    Journal(tmp_path).append(make_record())
    line = json.loads((tmp_path / "journal.jsonl").read_text())
    wanted = {"schema_version", "id", "occasion", "boot", "trial", "environment", "started_at", "duration_s", "outcome"}
    assert wanted <= line.keys()
    assert line["outcome"]["kind"] == "measured"
    canonical = json.dumps(line["trial"], sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    assert hashlib.sha256(canonical.encode()).hexdigest() == line["id"]


def test_an_equal_key_is_refused_also_when_another_process_wrote_it(tmp_path: Path) -> None:
    mine, other = Journal(tmp_path), Journal(tmp_path)
    mine.append(make_record())
    with pytest.raises(StoreError, match="recorded already"):
        other.append(make_record())
    other.append(make_record(occasion=1))
    with pytest.raises(StoreError, match="occasion 1 is recorded already"):
        mine.append(make_record(occasion=1))
    assert len(mine.read().records) == 2


@given(cut=st.integers(min_value=1), tail=st.binary(max_size=40))
def test_a_torn_last_line_costs_only_itself(tmp_path_factory: pytest.TempPathFactory, cut: int, tail: bytes) -> None:
    folder = tmp_path_factory.mktemp("torn")
    journal = Journal(folder)
    journal.append(make_record(occasion=0))
    whole = journal.path.read_bytes()
    torn = whole[: cut % (len(whole) - 1) + 1].rstrip(b"\n") + tail.replace(b"\n", b"")
    assume(torn != whole.rstrip(b"\n"))  # that is no torn line but a whole one, twice
    journal.path.write_bytes(whole + torn)
    reading = Journal(folder).read()
    assert len(reading.records) >= 1
    assert all("incomplete last line" in problem for problem in reading.problems)
    Journal(folder).append(make_record(occasion=1))
    healed = Journal(folder).read()
    assert [record.occasion for record in healed.records] == [0, 1]
    assert healed.problems == ()
    assert (folder / "journal.torn").read_bytes().rstrip(b"\n") == torn


@given(st.binary(max_size=300))
def test_garbage_is_named_and_never_raised(tmp_path_factory: pytest.TempPathFactory, garbage: bytes) -> None:
    path = tmp_path_factory.mktemp("garbage") / "journal.jsonl"
    good = make_record().model_dump_json(exclude_none=True).encode()
    path.write_bytes(garbage.replace(b"\n", b" ") + b"\n" + good + b"\n")
    reading = read_journal(path)
    assert len(reading.records) == 1
    assert all(problem.startswith(f"{path}:1: ") for problem in reading.problems)


def test_a_doubled_line_and_a_deep_one_are_named_and_skipped(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    line = make_record().model_dump_json(exclude_none=True)
    path.write_text(f"{line}\n{'[' * 100_000}\n{line}\n")
    reading = read_journal(path)
    assert len(reading.records) == 1
    assert [problem.removeprefix(f"{path}:") for problem in reading.problems] == [
        "2: not JSON; skipped",
        "3: duplicate of line 1; skipped",
    ]
    with pytest.raises(StoreError, match="recorded already"):
        Journal(tmp_path).append(make_record())


def test_a_line_that_is_no_record_does_not_hold_its_key(tmp_path: Path) -> None:
    first, second = (make_record(occasion=number).model_dump_json(exclude_none=True) for number in (0, 1))
    (tmp_path / "journal.jsonl").write_text(first.replace('"duration_s":1.0', '"duration_s":"?"') + f"\n{second}\n")
    journal = Journal(tmp_path)
    assert [record.occasion for record in journal.read().records] == [1]
    journal.append(make_record(occasion=0))
    assert [record.occasion for record in journal.read().records] == [1, 0]


def test_a_record_that_lacks_its_newline_alone_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    path.write_text(make_record().model_dump_json(exclude_none=True))
    Journal(tmp_path).append(make_record(occasion=1))
    reading = read_journal(path)
    assert ([record.occasion for record in reading.records], reading.problems) == ([0, 1], ())
    assert not path.with_suffix(".torn").exists()


def test_a_record_of_the_future_asks_for_an_upgrade(tmp_path: Path) -> None:
    data = json.loads(make_record().model_dump_json(exclude_none=True)) | {"schema_version": 99, "novelty": 1}
    path = tmp_path / "journal.jsonl"
    path.write_text(json.dumps(data) + "\n")
    with pytest.raises(InputError, match="schema_version 99 is newer"):
        read_journal(path)


def test_an_id_that_is_not_the_trials_is_no_record(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    line = make_record(spec=make_spec(chunked_prefill_size=64)).model_dump_json(exclude_none=True)
    path.write_text(line.replace('"chunked_prefill_size":64', '"chunked_prefill_size":65') + "\n")
    reading = read_journal(path)
    assert reading.records == ()
    assert "id is not the trial's" in reading.problems[0]


WRITER = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parents[2])!r})
from pathlib import Path
from factories import make_record
from dsabench.results.journal import Journal

journal, start, count = Journal(Path(sys.argv[1])), int(sys.argv[2]), int(sys.argv[3])
print("go", flush=True)
for occasion in range(start, start + count):
    journal.append(make_record(occasion=occasion))
"""


def start_writer(folder: Path, start: int, count: int) -> subprocess.Popen[bytes]:
    words = [sys.executable, "-c", WRITER, str(folder), str(start), str(count)]
    return subprocess.Popen(words, stdout=subprocess.PIPE)


def test_two_processes_append_without_losing_or_mixing(tmp_path: Path) -> None:
    writers = [start_writer(tmp_path, start, 25) for start in (0, 25)]
    for writer in writers:
        writer.communicate(timeout=60)
        assert writer.returncode == 0
    reading = Journal(tmp_path).read()
    assert sorted(record.occasion for record in reading.records) == list(range(50))
    assert reading.problems == ()


def test_a_full_disk_leaves_the_journal_as_it_was(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.append(make_record(occasion=0))
    before = journal.path.read_bytes()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 100, hard))
    try:
        with pytest.raises(StoreError, match="was not written"):
            journal.append(make_record(occasion=1))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, handler)
    assert journal.path.read_bytes() == before
    journal.append(make_record(occasion=1))
    assert len(journal.read().records) == 2


def test_a_writer_killed_at_any_moment_leaves_only_whole_records(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    path.touch()
    for attempt in range(3):
        before = len(Journal(tmp_path).read().records)
        writer = start_writer(tmp_path, before, 10_000)
        assert writer.stdout is not None
        writer.stdout.readline()
        while path.read_bytes().count(b"\n") < before + 20 + 30 * attempt:
            assert writer.poll() is None
        os.kill(writer.pid, signal.SIGKILL)
        writer.communicate()
        records = Journal(tmp_path).read().records
        assert [record.occasion for record in records] == list(range(len(records)))


def test_finding_journals(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such folder"):
        find_journals(tmp_path / "nowhere")
    with pytest.raises(InputError, match=r"no journal\.jsonl"):
        find_journals(tmp_path)
    Journal(tmp_path / "b").append(make_record())
    Journal(tmp_path / "a" / "deep").append(make_record())
    assert [path.parent.name for path in find_journals(tmp_path)] == ["deep", "b"]
    assert find_journals(tmp_path / "b" / "journal.jsonl") == [tmp_path / "b" / "journal.jsonl"]


HOLD = (
    "import sys, time\nfrom pathlib import Path\nfrom dsabench.results.journal import claim_folder\n"
    "with claim_folder(Path(sys.argv[1])):\n    print('held', flush=True)\n    time.sleep(60)\n"
)


def test_a_second_sweep_is_told_who_holds_the_folder_and_a_killed_one_holds_nothing(tmp_path: Path) -> None:
    holder = subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE)
    assert holder.stdout is not None
    try:
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(BusyError, match=f"pid {holder.pid}"), claim_folder(tmp_path):
            pass
    finally:
        os.kill(holder.pid, signal.SIGKILL)
        holder.wait()
        holder.stdout.close()
    with claim_folder(tmp_path):
        pass


def test_a_line_longer_than_any_record_is_junk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = Journal(tmp_path)
    for number in range(3):
        journal.append(make_record(occasion=number))
    with journal.path.open("ab") as file:
        file.write(b'{"a": "' + b"x" * 3_000_000 + b'"}\n')
    journal.append(make_record(occasion=3))
    monkeypatch.setattr("dsabench.results.journal.LINE_MAX", 1_000_000)
    found = read_journal(journal.path)
    assert [record.occasion for record in found.records] == [0, 1, 2, 3]
    assert found.problems == (f"{journal.path}:4: longer than 0 MiB; skipped",)
    monkeypatch.setattr("dsabench.results.journal.WHOLE_MAX", 0)
    newest = list(newest_records(journal.path))
    assert [one if isinstance(one, str) else one.occasion for one in newest] == [
        3,
        f"{journal.path}: longer than 0 MiB; skipped",
        2,
        1,
        0,
    ]
