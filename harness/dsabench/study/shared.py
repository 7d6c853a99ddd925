"""Several machines on one study: a PostgreSQL database has the records of all and the boots under way.

Each machine keeps a journal of its own, which ends up with everybody's records and samples. A boot under way is a lock of the
database session that holds it, so it ends with its process, however that ends.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from dsabench.errors import DsabenchError, InputError, StoreError
from dsabench.model.record import Record
from dsabench.results.journal import PACKED, Journal, place_inside, stored_samples, whole_file
from dsabench.results.study_records import BootReservation
from dsabench.study.postgresql import Session, require_postgresql

_BOOTS = 0x647361
"""The first of the two numbers of a lock on a row of `dsabench_boots`; the second one is the row's."""
_TABLES = (
    """CREATE TABLE IF NOT EXISTS dsabench_records (
        id serial PRIMARY KEY, scope text NOT NULL, key text NOT NULL, record text NOT NULL, samples bytea, packed boolean,
        UNIQUE (scope, key))""",
    """CREATE TABLE IF NOT EXISTS dsabench_boots (
        id serial PRIMARY KEY, scope text NOT NULL, kind text NOT NULL, content text NOT NULL)""",
)

Kind = Literal["boot", "confirm", "conclude"]
"""A boot under way; a machine that confirms; the one that completes the confirmation."""


class SharedStudy:
    """The study in the database, as one process sees it."""

    def __init__(self, url: str, study: str, fingerprint: str) -> None:
        """`url` is as SQLAlchemy takes it, `postgresql+psycopg2://USER@HOST/DB`. Machines of another fingerprint share nothing.

        Raises:
            InputError: it is of another database.

        """
        require_postgresql(url)
        self._session = Session(url, _TABLES)
        self._study, self._fingerprint = study, fingerprint
        self._scope = f"{study} {fingerprint}"
        self._seen = 0
        """The last row of the records that was read."""
        self._concludes = False
        self._confirms: int | None = None
        """Its row while it confirms."""

    def join(self, folder: Path) -> SharedJournal:
        """Exchange what this machine and the others have measured so far. No session is open afterwards, so that a process may fork.

        Args:
            folder: of this machine's journal.

        Raises:
            InputError: the storage cannot be opened, or the journal has records in the places of others.
            StoreError: a record cannot be written.

        """
        journal = SharedJournal(folder, self)
        with self.turn():
            theirs = self.pull(journal)
            for record in journal.read().records:
                is_of_study = record.study == self._study and record.environment.fingerprint == self._fingerprint
                if is_of_study and _key(record) not in theirs:
                    self.add(record, folder)
        self.close()
        return journal

    def turn(self) -> AbstractContextManager[None]:
        """Lock out the other machines. A turn within a turn is allowed.

        Raises:
            StoreError: the storage does not answer, or another machine does not end its turn.

        """
        return self._session.lock(self._scope)

    def pull(self, journal: SharedJournal) -> set[str]:
        """Add what the others have measured since the last time, samples first. Call it inside a turn.

        Returns:
            The keys of all records since the last time.

        Raises:
            InputError: the journal has another record in the place of one of these, or they are of another version.
            StoreError: a record cannot be written.

        """
        rows = self._session.ask(
            "SELECT id, key, record FROM dsabench_records WHERE scope = :scope AND id > :seen ORDER BY id",
            scope=self._scope, seen=self._seen,
        )  # fmt: skip
        own = {record.key: record for record in journal.read().records} if rows else {}
        for row in rows:
            record = _record_of(row.record)
            known = own.get(record.key)
            if known is None:
                if record.samples is not None:
                    self._pull_samples(row.id, place_inside(journal.path.parent, record.samples))
                journal.keep(record)
            elif known.boot != record.boot:
                raise InputError(
                    f"{journal.path}: has another record of {record.id[:12]} occasion {record.occasion} than the shared study; "
                    "take a new --results folder, and add this one to it with `dsabench results merge`"
                )
            self._seen = row.id
        return {row.key for row in rows}

    def _pull_samples(self, row: int, place: Path) -> None:
        (stored,) = self._session.ask("SELECT samples, packed FROM dsabench_records WHERE id = :row", row=row)
        if stored.samples is not None:
            name = f"{place.name}{PACKED if stored.packed else ''}"
            with whole_file(place.with_name(name), "samples of the shared study were not written") as file:
                file.write(stored.samples)

    def add(self, record: Record, folder: Path) -> None:
        """Give the others a record, with its samples in the folder; a second time does nothing.

        Raises:
            StoreError: the storage does not answer, or has another record of this trial and occasion.

        """
        found = None if record.samples is None else stored_samples(folder, record.samples)
        given = {
            "scope": self._scope,
            "key": _key(record),
            "record": record.model_dump_json(exclude_none=True),
            "samples": None if found is None else found.read_bytes(),
            "packed": found is not None and found.suffix == PACKED,
        }
        with self.turn():  # a row that is committed late would have a number that others have passed
            added = self._session.ask(
                """INSERT INTO dsabench_records (scope, key, record, samples, packed) VALUES (:scope, :key, :record, :samples, :packed)
                   ON CONFLICT (scope, key) DO NOTHING RETURNING id""",
                **given,
            )
            if added:
                return
            (there,) = self._session.ask(
                "SELECT record FROM dsabench_records WHERE scope = :scope AND key = :key", scope=self._scope, key=_key(record)
            )  # fmt: skip
        if _record_of(there.record).boot != record.boot:
            raise StoreError(f"the shared study has another record of {record.id[:12]} occasion {record.occasion}")

    def may_conclude(self, machine: str) -> bool:
        """Whether this machine completes the confirmation, which one does at a time. It then does so until its processes have ended.

        Raises:
            StoreError: the storage does not answer.

        """
        with self.turn():
            if self._concludes:
                return True
            holders = self.alive("conclude")
            if any(name != machine for _, name in holders):
                return False
            self._join_holder("conclude", machine, holders)
            self._concludes = True
        return True

    def confirming(self, machine: str) -> set[str]:
        """The other machines that confirm at this moment. From now on this one is among theirs, until it says that it does no more.
        Call it inside a turn.

        Raises:
            StoreError: the storage does not answer.

        """
        holders = self.alive("confirm")
        if self._confirms is None:
            self._confirms = self._join_holder("confirm", machine, [one for one in holders if one[1] == machine])
        return {name for _, name in holders} - {machine}

    def confirms_no_more(self) -> None:
        """This process has done its part."""
        row, self._confirms = self._confirms, None
        if row is not None:
            with suppress(DsabenchError):  # the database ends it with the session
                self._session.ask("SELECT pg_advisory_unlock_shared(:kind, :row)", kind=_BOOTS, row=row)

    def _join_holder(self, kind: Kind, machine: str, holders: Sequence[tuple[int, str]]) -> int:
        """Hold the row of a machine together with its other processes."""
        row = holders[0][0] if holders else self.insert(kind, machine)
        self._session.ask("SELECT pg_advisory_lock_shared(:kind, :row)", kind=_BOOTS, row=row)
        return row

    def alive(self, kind: Kind) -> list[tuple[int, str]]:
        """Rows of living sessions, with their content. Removes those of dead ones. Call it inside a turn."""
        locked = """EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND granted AND objsubid = 2 AND classid = :kind_number
            AND objid = b.id AND database = (SELECT oid FROM pg_database WHERE datname = current_database()))"""
        given = {"scope": self._scope, "kind": kind, "kind_number": _BOOTS}
        of_kind = "FROM dsabench_boots b WHERE scope = :scope AND kind = :kind"
        self._session.ask(f"DELETE {of_kind} AND NOT {locked}", **given)
        rows = self._session.ask(f"SELECT id, content {of_kind} ORDER BY id", **given)
        return [(row.id, row.content) for row in rows]

    def insert(self, kind: Kind, content: str) -> int:
        """A row without a lock; returns its number. Call it inside a turn."""
        (row,) = self._session.ask(
            "INSERT INTO dsabench_boots (scope, kind, content) VALUES (:scope, :kind, :content) RETURNING id",
            scope=self._scope, kind=kind, content=content,
        )  # fmt: skip
        return int(row.id)

    @contextmanager
    def held(self, row: int) -> Iterator[None]:
        """Hold the lock of a row, and remove the row."""
        given = {"kind": _BOOTS, "row": row}
        self._session.ask("SELECT pg_advisory_lock(:kind, :row)", **given)
        try:
            yield
        finally:
            with suppress(DsabenchError):  # the database ends it with the session
                self._session.ask("DELETE FROM dsabench_boots WHERE id = :row", row=row)
                self._session.ask("SELECT pg_advisory_unlock(:kind, :row)", **given)

    def failing_later(self) -> AbstractContextManager[None]:
        """What fails inside is raised by the next turn."""
        return self._session.failing_later()

    def close(self) -> None:
        """Give up what this process holds."""
        self._concludes, self._confirms = False, None
        self._session.close()


class SharedReservations:
    """The boots under way on all machines, as one worker sees them."""

    def __init__(self, journal: SharedJournal) -> None:
        self._shared, self._journal = journal.shared, journal
        self._row: int | None = None

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Lock out the other workers, of all machines, while this one takes what they have measured, chooses and reserves.

        Raises:
            StoreError: the storage does not answer, or a record cannot be written.

        """
        with self._shared.turn():
            self._shared.pull(self._journal)
            yield

    def live(self) -> tuple[BootReservation, ...]:
        """Reservations of other living workers. Call it inside a turn."""
        rows = self._shared.alive("boot")
        return tuple(BootReservation.model_validate_json(text) for row, text in rows if row != self._row)

    @contextmanager
    def hold(self, reservation: BootReservation) -> Iterator[None]:
        """Hold a reservation. Enter inside a turn, leave after the records of the boot are written.

        Raises:
            StoreError: the storage does not answer.

        """
        self._row = self._shared.insert("boot", reservation.model_dump_json())
        with self._shared.held(self._row):
            yield

    def may_conclude(self, machine: str) -> bool:
        """Whether this machine completes the confirmation, and no other.

        Raises:
            StoreError: the storage does not answer.

        """
        return self._shared.may_conclude(machine)

    def confirming(self, machine: str) -> set[str]:
        """The other machines that confirm at this moment; see `SharedStudy.confirming`."""
        return self._shared.confirming(machine)

    def confirms_no_more(self) -> None:
        """See `SharedStudy.confirms_no_more`."""
        self._shared.confirms_no_more()


class SharedJournal(Journal):
    """The journal of one machine, whose records the others get too."""

    def __init__(self, folder: Path, shared: SharedStudy) -> None:
        super().__init__(folder)
        self.shared = shared

    def append(self, record: Record) -> None:
        """Write one record, for the others and here. If the others cannot get it, the next turn fails; it is on disk all the same,
        and the next run gives it to them.

        Raises:
            StoreError: the key exists already, or the disk is full or read-only.

        """
        with self.shared.failing_later():
            self.shared.add(record, self.path.parent)
        self.keep(record)

    def keep(self, record: Record) -> None:
        """Write a record here that the others have."""
        super().append(record)

    def reopened(self) -> SharedJournal:
        """The same, for another process."""
        return SharedJournal(self.path.parent, self.shared)


def _key(record: Record) -> str:
    return f"{record.id} {record.occasion}"


def _record_of(text: str) -> Record:
    try:
        return Record.model_validate_json(text)
    except ValidationError as error:
        raise InputError(
            "--optuna-storage: the shared study has a record that this dsabench cannot read: take the same version on all machines"
        ) from error
