"""A session of a PostgreSQL database: statements, and locks that end with the process that holds them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from dsabench.errors import DsabenchError, InputError, StoreError

if TYPE_CHECKING:
    from sqlalchemy import Connection

_SETTINGS = (
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
_MAKES = 0x647361
"""The lock under which tables are made: PostgreSQL itself lets two sessions that make one fail."""


def require_postgresql(url: str | None) -> None:
    """Raise InputError where a shared study cannot be."""
    if not (url or "").startswith("postgresql"):
        raise InputError("--shared goes with --optuna-storage postgresql+psycopg2://USER@HOST/DB")


class Session:
    """It is opened when it is first asked, in each process. Once it has failed it is never opened again: another one would not have its
    locks.
    """

    def __init__(self, url: str, tables: Sequence[str] = ()) -> None:
        """`url` is as SQLAlchemy takes it; `tables` are statements that make what is not there."""
        self._url, self._tables = url, tables
        self._opened: tuple[int, Connection] | None = None
        self._failed: DsabenchError | None = None

    def ask(self, statement: str, **given: object) -> Sequence[Any]:
        """The rows of the answer.

        Raises:
            InputError: it cannot be opened.
            StoreError: it does not answer.

        """
        if self._failed is not None:
            raise self._failed
        if self._opened is None or self._opened[0] != os.getpid():
            self._opened = os.getpid(), _connect(self._url, self._tables)
        from sqlalchemy import text  # noqa: PLC0415  (a second of start that most runs do without)
        from sqlalchemy.exc import SQLAlchemyError  # noqa: PLC0415

        try:
            answer = self._opened[1].execute(text(statement), given)
            return answer.all() if answer.returns_rows else ()
        except SQLAlchemyError as error:
            self._failed = StoreError(f"--optuna-storage: the storage does not answer: {line_of(error)}")
            raise self._failed from error

    @contextmanager
    def lock(self, name: str) -> Iterator[None]:
        """Lock out all other sessions that ask for the same lock. It may be taken again within.

        Raises:
            StoreError: it does not answer, or another session keeps the lock.

        """
        number = int.from_bytes(sha256(name.encode()).digest()[:8], signed=True)
        self.ask("SELECT pg_advisory_lock(:number)", number=number)
        try:
            yield
        finally:
            with suppress(DsabenchError):  # without a session there is no lock
                self.ask("SELECT pg_advisory_unlock(:number)", number=number)

    @contextmanager
    def failing_later(self) -> Iterator[None]:
        """What fails inside is raised by whatever is asked next."""
        try:
            yield
        except DsabenchError as error:
            self._failed = error

    def close(self) -> None:
        """End it with its locks; the next question opens another one. A process that forks must do so before."""
        opened, self._opened = self._opened, None
        if opened is not None and opened[0] == os.getpid():
            opened[1].close()


def _connect(url: str, tables: Sequence[str]) -> Connection:
    from sqlalchemy import create_engine, text  # noqa: PLC0415
    from sqlalchemy.exc import SQLAlchemyError  # noqa: PLC0415
    from sqlalchemy.pool import NullPool  # noqa: PLC0415

    try:
        engine = create_engine(url, poolclass=NullPool, isolation_level="AUTOCOMMIT", connect_args=_CONNECT)
        connection = engine.connect()
        for statement in (
            *_SETTINGS,
            f"SELECT pg_advisory_lock({_MAKES})",
            *tables,
            f"SELECT pg_advisory_unlock({_MAKES})",
        ):
            connection.execute(text(statement))
    except (SQLAlchemyError, ImportError) as error:
        raise InputError(f"--optuna-storage: the storage cannot be opened: {line_of(error)}") from error
    return connection


def line_of(error: Exception) -> str:
    """What the driver says first; SQLAlchemy adds the statement with its values."""
    lines = str(getattr(error, "orig", None) or error).strip().splitlines()
    return lines[0][:200] if lines else type(error).__name__
