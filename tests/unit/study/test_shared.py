"""One study on several machines, through a real PostgreSQL: records and samples reach all, boots end with their process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import postgres
import shared_workers
from dsabench.errors import InputError, StoreError
from dsabench.model.record import Record
from dsabench.results.journal import Journal
from dsabench.results.study_records import BootReservation, ReservedTrial
from dsabench.study.shared import SharedJournal, SharedReservations, SharedStudy
from factories import ENVIRONMENT, make_failure, make_record, make_spec

STUDY = "local"
RESERVATION = BootReservation(
    machine="here", spec=make_spec(), phase="search", round=0, trials=(ReservedTrial(trial="a", occasion=1),)
)
HOLD = """
import sys
from pathlib import Path
from dsabench.results.study_records import BootReservation
from dsabench.study.shared import SharedReservations, SharedStudy
shared = SharedStudy(sys.argv[1], "local", sys.argv[2])
bookings = SharedReservations(shared.join(Path(sys.argv[3])))
with bookings.turn():
    held = bookings.hold(BootReservation.model_validate_json(sys.argv[4]))
    held.__enter__()
print("held", shared.may_conclude("there"), flush=True)
sys.stdin.read()
"""


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with postgres.running() as found:
        yield found


class Machine:
    """One process of a shared study."""

    def __init__(self, url: str, folder: Path, scope: str) -> None:
        self.shared = SharedStudy(url, STUDY, scope)
        self.folder = folder
        self.journal: SharedJournal = self.shared.join(folder)
        self.reservations = SharedReservations(self.journal)

    def sees(self) -> list[tuple[str, int]]:
        with self.reservations.turn():
            return [(record.boot, record.occasion) for record in self.journal.read().records]


@pytest.fixture
def scope() -> str:
    return ENVIRONMENT.fingerprint


@pytest.fixture(autouse=True)
def empty(url: str) -> None:
    shared = SharedStudy(url, "none", "none")
    shared._session.ask("TRUNCATE dsabench_records, dsabench_boots")
    shared.close()


def record(occasion: int = 0, boot: str = "b0", *, samples: str | None = None, **more) -> Record:
    made = make_record(occasion=occasion, boot=boot, **more).model_copy(update={"study": STUDY})
    if samples is None:
        return made
    return made.model_copy(update={"outcome": made.outcome.model_copy(update={"samples": samples})})


def test_records_and_samples_reach_the_others_once(url: str, tmp_path: Path, scope: str) -> None:
    one, other = Machine(url, tmp_path / "one", scope), Machine(url, tmp_path / "other", scope)
    (one.folder / "samples").mkdir(parents=True)
    (one.folder / "samples" / "plain.parquet").write_bytes(b"\0plain")
    (one.folder / "samples" / "packed.jsonl.gz").write_bytes(b"\0packed")
    one.journal.append(record(0, samples="samples/plain.parquet"))
    one.journal.append(record(1, "b1", samples="samples/packed.jsonl"))
    one.journal.append(record(2, "b2", outcome=make_failure()))
    assert other.sees() == [("b0", 0), ("b1", 1), ("b2", 2)] == one.sees()
    assert (other.folder / "samples" / "plain.parquet").read_bytes() == b"\0plain"
    assert (other.folder / "samples" / "packed.jsonl.gz").read_bytes() == b"\0packed"
    assert other.journal.read().records == one.journal.read().records
    assert Machine(url, tmp_path / "late", scope).sees() == one.sees()
    assert Machine(url, tmp_path / "other hardware", "0" * 16).sees() == []


def test_what_was_measured_before_is_given_to_the_others(url: str, tmp_path: Path, scope: str) -> None:
    Journal(tmp_path / "one").append(record())
    Journal(tmp_path / "one").append(record(1).model_copy(update={"study": "another one"}))
    one = Machine(url, tmp_path / "one", scope)
    assert Machine(url, tmp_path / "other", scope).sees() == [("b0", 0)]
    one.shared.close()
    assert len(Machine(url, tmp_path / "one", scope).sees()) == 2, "joining again adds nothing"


def test_two_records_of_one_place_are_refused_with_the_way_out(url: str, tmp_path: Path, scope: str) -> None:
    Machine(url, tmp_path / "one", scope).journal.append(record())
    Journal(tmp_path / "other").append(record(boot="its own"))
    with pytest.raises(
        InputError, match="take a new --results folder, and add this one to it with `dsabench results merge`"
    ):
        Machine(url, tmp_path / "other", scope)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            "record = replace(record, 'samples/plain.parquet', '../outside')",
            "names a file outside of this folder",
        ),
        ("record = replace(record, '\"occasion\"', '\"of a newer version\"')", "take the same version on all machines"),
    ],
)
def test_what_others_wrote_is_not_trusted(url: str, tmp_path: Path, scope: str, change: str, said: str) -> None:
    one = Machine(url, tmp_path / "one", scope)
    (one.folder / "samples").mkdir(parents=True)
    (one.folder / "samples" / "plain.parquet").write_bytes(b"plain")
    one.journal.append(record(samples="samples/plain.parquet"))
    one.shared._session.ask(f"UPDATE dsabench_records SET {change}")
    with pytest.raises(InputError, match=said):
        Machine(url, tmp_path / "other", scope)
    assert {place.name for place in tmp_path.iterdir()} <= {"one", "other"}


def test_a_boot_under_way_ends_with_its_process(url: str, tmp_path: Path, scope: str) -> None:
    here = Machine(url, tmp_path / "here", scope)
    words = [sys.executable, "-c", HOLD, url, scope, str(tmp_path / "there"), RESERVATION.model_dump_json()]
    there = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert there.stdout is not None
    assert there.stdout.readline() == "held True\n"
    with here.reservations.turn():
        assert here.reservations.live() == (RESERVATION,)
        with here.reservations.hold(RESERVATION):
            assert here.reservations.live() == (RESERVATION,), "its own is not another's"
    assert not here.shared.may_conclude("here")
    assert Machine(url, tmp_path / "lane", scope).shared.may_conclude("there"), "a process of the machine that confirms"
    there.send_signal(signal.SIGKILL)
    there.communicate()
    with here.reservations.turn():
        assert here.reservations.live() == ()


def test_machines_know_who_confirms_beside_them(url: str, tmp_path: Path, scope: str) -> None:
    one, other = Machine(url, tmp_path / "one", scope), Machine(url, tmp_path / "other", scope)
    lane = Machine(url, tmp_path / "lane", scope)

    def seen(machine: Machine, name: str) -> set[str]:
        with machine.reservations.turn():
            return machine.reservations.confirming(name)

    assert seen(one, "one") == set()
    assert seen(other, "other") == {"one"}
    assert seen(lane, "one") == {"other"}, "a process of the same machine"
    one.reservations.confirms_no_more()
    assert seen(other, "other") == {"one"}, "its other process does"
    lane.shared.close()
    assert seen(other, "other") == set()
    other.reservations.confirms_no_more()
    assert seen(one, "one") == set()


def test_another_machine_concludes_when_the_first_has_ended(url: str, tmp_path: Path, scope: str) -> None:
    one, other = Machine(url, tmp_path / "one", scope), Machine(url, tmp_path / "other", scope)
    assert one.shared.may_conclude("one")
    assert one.shared.may_conclude("one")
    assert not other.shared.may_conclude("other")
    one.shared.close()
    assert other.shared.may_conclude("other")


def test_a_lost_session_loses_no_record_and_is_said_at_the_next_turn(url: str, tmp_path: Path, scope: str) -> None:
    one, other = Machine(url, tmp_path / "one", scope), Machine(url, tmp_path / "other", scope)
    (pid,) = one.shared._session.ask("SELECT pg_backend_pid() AS pid")
    os.kill(pid.pid, signal.SIGTERM)
    one.journal.append(record())
    with (
        pytest.raises(StoreError, match=r"--optuna-storage: the storage does not answer: [^\n]+$"),
        one.reservations.turn(),
    ):
        pass
    assert other.sees() == []
    Machine(url, tmp_path / "one", scope)
    assert other.sees() == [("b0", 0)]


@pytest.mark.parametrize(
    ("url_of", "said"),
    [
        ("sqlite:///{folder}/study.db", "--shared goes with --optuna-storage postgresql"),
        ("postgresql+psycopg2://me:secret@127.0.0.1:1/x", "the storage cannot be opened: .*Connection refused"),
        ("nonsense", "--shared goes with --optuna-storage postgresql"),
        ("postgresql://[", "the storage cannot be opened"),
    ],
)
def test_a_storage_that_is_none_is_one_line_without_the_password(tmp_path: Path, url_of: str, said: str) -> None:
    with pytest.raises(InputError, match=said) as caught:
        Machine(url_of.format(folder=tmp_path), tmp_path, "f")
    assert "secret" not in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.slow
def test_killed_workers_lose_and_double_nothing() -> None:
    seen = shared_workers.run(3, 8, seed=1, settings=12, seconds=0.5, proposer="tpe")
    assert seen.problems == []
    assert seen.kills == 8
    assert len(seen.by_machine) == 3
