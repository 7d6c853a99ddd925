"""Several machines on one study: a PostgreSQL database has the records of all and the boots under way.

Each machine keeps a journal of its own, which ends up with everybody's records and samples. A boot under way is a lock of the
database session that holds it, so it ends with its process, however that ends.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import ValidationError

from dsabench.errors import DsabenchError, InputError, StoreError
from dsabench.model.record import Failed, Record
from dsabench.results.journal import Journal, place_inside, whole_file
from dsabench.results.study_records import BootReservation

if TYPE_CHECKING:
    from sqlalchemy import Connection

_PACKED = ".gz"
_BOOTS = 0x647361
"""The first of the two numbers of a lock on a row of `dsabench_boots`; the second one is the row's."""
_TABLES = (
    """CREATE TABLE IF NOT EXISTS dsabench_records (
        id serial PRIMARY KEY, scope text NOT NULL, key text NOT NULL, record text NOT NULL, samples bytea, ending text,
        UNIQUE (scope, key))""",
    """CREATE TABLE IF NOT EXISTS dsabench_boots (
        id serial PRIMARY KEY, scope text NOT NULL, kind text NOT NULL, content text NOT NULL)""",
)
_SESSION = (
    "SET lock_timeout = '120s'",
    # The database then misses a machine that lost its power or network after a minute.
    "SET tcp_keepalives_idle = 30",
    "SET tcp_keepalives_interval = 10",
    "SET tcp_keepalives_count = 3",
)
_CONNECT: dict[str, Any] = {
    "connect_timeout": 10,
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "application_name": "dsabench",
}

Kind = Literal["boot", "confirm"]


class SharedStudy:
    """The study in the database, as one process sees it. It connects when it is first asked, and again after a fork."""

    def __init__(self, url: str, study: str, fingerprint: str) -> None:
        """`url` is as SQLAlchemy takes it, `postgresql+psycopg2://USER@HOST/DB`. Machines of another fingerprint share nothing."""
        self._url, self._study, self._fingerprint = url, study, fingerprint
        self._scope = f"{study} {fingerprint}"
        self._opened: tuple[int, Connection] | None = None
        self._seen = 0
        """The last row of the records that was read."""
        self._confirms = False
        self._failed: DsabenchError | None = None

    def join(self, folder: Path) -> SharedJournal:
        """Exchange what this machine and the others have measured so far.

        Args:
            folder: of this machine's journal.

        Raises:
            InputError: the storage cannot be opened, or the journal has records in the places of others.
            StoreError: a record cannot be written.

        """
        journal = SharedJournal(folder, self)
        with self.turn():
            self.pull(journal)
            for record in journal.read().records:
                if record.study == self._study and record.environment.fingerprint == self._fingerprint:
                    self.add(record, folder)
        return journal

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Lock out the other machines. A turn within a turn is allowed.

        Raises:
            StoreError: the storage does not answer, or another machine does not end its turn.

        """
        number = int.from_bytes(sha256(self._scope.encode()).digest()[:8], signed=True)
        self._ask("SELECT pg_advisory_lock(:number)", number=number)
        try:
            yield
        finally:
            with suppress(DsabenchError):  # without a session there is no lock
                self._ask("SELECT pg_advisory_unlock(:number)", number=number)

    def pull(self, journal: SharedJournal) -> None:
        """Add what the others have measured since the last time, samples first. Call it inside a turn.

        Raises:
            InputError: the journal has another record in the place of one of these, or they are of another version.
            StoreError: a record cannot be written.

        """
        rows = self._ask(
            "SELECT id, record, samples, ending FROM dsabench_records WHERE scope = :scope AND id > :seen ORDER BY id",
            scope=self._scope, seen=self._seen,
        )  # fmt: skip
        if not rows:
            return
        own = {record.key: record for record in journal.read().records}
        for row in rows:
            record = _record_of(row.record)
            known = own.get(record.key)
            if known is None:
                if (name := _samples_name(record)) is not None and row.samples is not None:
                    place = place_inside(journal.path.parent, f"{name}{row.ending}")
                    with whole_file(place, "samples of the shared study were not written") as file:
                        file.write(row.samples)
                journal.keep(record)
            elif known.boot != record.boot:
                raise InputError(
                    f"{journal.path}: has another record of {record.id[:12]} occasion {record.occasion} than the shared study; "
                    "take a new --results folder, and add this one to it with `dsabench results merge`"
                )
            self._seen = row.id

    def add(self, record: Record, folder: Path) -> None:
        """Give the others a record, with its samples in the folder; a second time does nothing.

        Raises:
            StoreError: the storage does not answer, or has another record of this trial and occasion.

        """
        samples, ending = _samples_of(record, folder)
        key = f"{record.id} {record.occasion}"
        with self.turn():  # a row that is committed late would have a number that others have passed
            added = self._ask(
                """INSERT INTO dsabench_records (scope, key, record, samples, ending) VALUES (:scope, :key, :record, :samples, :ending)
                   ON CONFLICT (scope, key) DO NOTHING RETURNING id""",
                scope=self._scope, key=key, record=record.model_dump_json(exclude_none=True), samples=samples, ending=ending,
            )  # fmt: skip
            if not added:
                (there,) = self._ask(
                    "SELECT record FROM dsabench_records WHERE scope = :scope AND key = :key",
                    scope=self._scope,
                    key=key,
                )
                if _record_of(there.record).boot != record.boot:
                    raise StoreError(
                        f"the shared study has another record of {record.id[:12]} occasion {record.occasion}"
                    )

    def may_confirm(self, machine: str) -> bool:
        """Whether this machine confirms, which one does at a time: both sides of a pair are of one machine. It then does so
        until its processes have ended.

        Raises:
            StoreError: the storage does not answer.

        """
        with self.turn():
            if self._confirms:
                return True
            holders = self.alive("confirm")
            if any(name != machine for _, name in holders):
                return False
            row = holders[0][0] if holders else self.insert("confirm", machine)
            self._ask("SELECT pg_advisory_lock_shared(:kind, :row)", kind=_BOOTS, row=row)
            self._confirms = True
        return True

    def alive(self, kind: Kind) -> list[tuple[int, str]]:
        """Rows of living sessions, with their content. Removes those of dead ones. Call it inside a turn."""
        locked = """EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND granted AND objsubid = 2 AND classid = :kind_number
            AND objid = b.id AND database = (SELECT oid FROM pg_database WHERE datname = current_database()))"""
        given = {"scope": self._scope, "kind": kind, "kind_number": _BOOTS}
        of_kind = "FROM dsabench_boots b WHERE scope = :scope AND kind = :kind"
        self._ask(f"DELETE {of_kind} AND NOT {locked}", **given)
        return [(row.id, row.content) for row in self._ask(f"SELECT id, content {of_kind} ORDER BY id", **given)]

    def insert(self, kind: Kind, content: str) -> int:
        """A row without a lock; returns its number. Call it inside a turn."""
        (row,) = self._ask(
            "INSERT INTO dsabench_boots (scope, kind, content) VALUES (:scope, :kind, :content) RETURNING id",
            scope=self._scope, kind=kind, content=content,
        )  # fmt: skip
        return int(row.id)

    @contextmanager
    def held(self, row: int) -> Iterator[None]:
        """Hold the lock of a row, and remove the row."""
        given = {"kind": _BOOTS, "row": row}
        self._ask("SELECT pg_advisory_lock(:kind, :row)", **given)
        try:
            yield
        finally:
            with suppress(DsabenchError):  # the database ends it with the session
                self._ask("DELETE FROM dsabench_boots WHERE id = :row", row=row)
                self._ask("SELECT pg_advisory_unlock(:kind, :row)", **given)

    @contextmanager
    def failing_later(self) -> Iterator[None]:
        """What fails inside is raised by whatever is asked next."""
        try:
            yield
        except DsabenchError as error:
            self._failed = error

    def close(self) -> None:
        """End the session with its locks. A process that forks must do so before."""
        opened, self._opened, self._confirms = self._opened, None, False
        if opened is not None and opened[0] == os.getpid():
            opened[1].close()

    def _ask(self, statement: str, **given: object) -> Sequence[Any]:
        """The rows of the answer."""
        from sqlalchemy import text  # noqa: PLC0415  (a second of start that most runs do without)
        from sqlalchemy.exc import SQLAlchemyError  # noqa: PLC0415

        if self._failed is not None:
            raise self._failed
        try:
            answer = self._connection().execute(text(statement), given)
            return answer.all() if answer.returns_rows else ()
        except SQLAlchemyError as error:
            # Another session would not have the locks of this one, so that nothing is asked any more.
            self._failed = StoreError(f"--optuna-storage: the storage does not answer: {_line_of(error)}")
            raise self._failed from error

    def _connection(self) -> Connection:
        if self._opened is None or self._opened[0] != os.getpid():
            self._opened = os.getpid(), _connect(self._url)
        return self._opened[1]


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


def _record_of(text: str) -> Record:
    try:
        return Record.model_validate_json(text)
    except ValidationError as error:
        raise InputError(
            "--optuna-storage: the shared study has a record that this dsabench cannot read: take the same version on all machines"
        ) from error


def _samples_name(record: Record) -> str | None:
    return None if isinstance(record.outcome, Failed) else record.outcome.samples


def _samples_of(record: Record, folder: Path) -> tuple[bytes | None, str]:
    """The file's content, and what its name ends in beside that of the record; None where there is none."""
    name = _samples_name(record)
    for ending in () if name is None else ("", _PACKED):
        with suppress(FileNotFoundError):
            return (folder / f"{name}{ending}").read_bytes(), ending
    return None, ""


def _connect(url: str) -> Connection:
    """A session of its own.

    Raises:
        InputError: it is no PostgreSQL, or cannot be opened.

    """
    from sqlalchemy import create_engine, make_url, text  # noqa: PLC0415
    from sqlalchemy.exc import SQLAlchemyError  # noqa: PLC0415
    from sqlalchemy.pool import NullPool  # noqa: PLC0415

    try:
        if make_url(url).get_backend_name() != "postgresql":
            raise InputError("a shared study takes a PostgreSQL database, postgresql+psycopg2://USER@HOST/DB")
        engine = create_engine(url, poolclass=NullPool, isolation_level="AUTOCOMMIT", connect_args=_CONNECT)
        connection = engine.connect()
        for statement in _SESSION:
            connection.execute(text(statement))
        connection.execute(text("SELECT pg_advisory_lock(:number)"), {"number": _BOOTS})
        for statement in _TABLES:
            connection.execute(text(statement))
        connection.execute(text("SELECT pg_advisory_unlock(:number)"), {"number": _BOOTS})
    except (SQLAlchemyError, ImportError) as error:
        raise InputError(f"--optuna-storage: the storage cannot be opened: {_line_of(error)}") from error
    return connection


def _line_of(error: Exception) -> str:
    """What the driver says first; SQLAlchemy adds the statement with its values."""
    lines = str(getattr(error, "orig", None) or error).strip().splitlines()
    return lines[0][:200] if lines else type(error).__name__
