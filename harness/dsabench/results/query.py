"""SQL over the records of journals and their samples, and exports of them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from dsabench.errors import InputError, StoreError, printable
from dsabench.results.frames import TABLES, Results, TableName, metrics_table, records_table, samples_table

if TYPE_CHECKING:
    import pandas as pd
    from duckdb import DuckDBPyConnection, DuckDBPyRelation


@dataclass(frozen=True, slots=True)
class QueryResult:
    """The answer to a query. None in a cell is SQL's NULL."""

    columns: tuple[str, ...]
    rows: tuple[tuple[object, ...], ...]


def query(results: Results, sql: str, limit: int | None = None) -> QueryResult:
    """Run one reading statement over the tables `records`, `metrics` and `samples`.

    The database is in memory and isolated: it can open no file, use no network and change no setting.

    Raises:
        InputError: the statement is wrong or does not only read.

    """
    import duckdb  # noqa: PLC0415  (a tenth of a second; only a query pays it)

    with _opened(results) as connection:
        try:
            found = connection.sql(_that_reads(connection, sql))
            zoned = [_ZONED in str(kind) for kind in found.types]
            columns = tuple(found.columns)
            plain = _without_zones(found) if any(zoned) else found
            rows = (plain if limit is None else plain.limit(limit)).fetchall()
        except duckdb.Error as error:
            raise InputError(_first_lines(str(error))) from error
    return QueryResult(columns, tuple(tuple(map(_cell, row, zoned)) for row in rows))


_READING = ("SELECT", "MULTI")
"""DuckDB's types of reading statements. SHOW, DESCRIBE and SUMMARIZE are SELECT to it; PIVOT is MULTI."""
_EXPLAIN = re.compile(r"^\s*EXPLAIN\s+(?:ANALYZE\s+)?(?:\([^)]*\)\s*)?", re.IGNORECASE)


def _that_reads(connection: DuckDBPyConnection, sql: str) -> str:
    """The statement itself, if it is a single one that only reads.

    Raises:
        InputError: it writes, or there is none or more than one.

    """
    kinds = [statement.type.name for statement in connection.extract_statements(sql)]
    if len(kinds) != 1:
        raise InputError(f"{len(kinds)} statements: give one SELECT over {', '.join(TABLES)}")
    if kinds == ["EXPLAIN"]:  # EXPLAIN ANALYZE runs the statement that it explains
        kinds = [statement.type.name for statement in connection.extract_statements(_EXPLAIN.sub("", sql))]
    if len(kinds) != 1 or kinds[0] not in _READING:
        raise InputError(f"{kinds[0]}: a query only reads: give one SELECT over {', '.join(TABLES)}")
    return sql


_ZONED = "TIMESTAMP WITH TIME ZONE"


def _without_zones(found: DuckDBPyRelation) -> DuckDBPyRelation:
    """The same columns with times in UTC. DuckDB needs pytz, which we do not install, to convert zoned times."""
    kinds = [str(kind).replace(_ZONED, "TIMESTAMP") for kind in found.types]
    cells = [f"CAST(#{place} AS {kind}) AS {_name(column)}"
             for place, (column, kind) in enumerate(zip(found.columns, kinds, strict=True), start=1)]  # fmt: skip
    return found.project(", ".join(cells))


def _cell(value: object, zoned: bool) -> object:
    """A value in the type of its column: the time zone that was removed for the transfer is added again."""
    if not zoned:
        return value
    if isinstance(value, datetime):
        return value.replace(tzinfo=UTC)
    if isinstance(value, list):
        return [_cell(one, zoned) for one in value]
    return {name: _cell(one, zoned) for name, one in value.items()} if isinstance(value, dict) else value


def _opened(results: Results) -> DuckDBPyConnection:
    """A database in memory with the three tables. Access to anything else is locked."""
    import duckdb  # noqa: PLC0415

    connection = duckdb.connect(":memory:")
    connection.execute("SET TimeZone = 'UTC'")
    for name, rows, as_json in (
        ("records", records_table(results), ("knobs", "trial", "environment", "resolved", "metrics_json")),
        ("metrics", metrics_table(results), ("knobs",)),
        ("samples", samples_table(results), ()),
    ):
        connection.register("rows", rows)
        typed = ", ".join(f"{column}::JSON AS {column}" for column in as_json)
        replaced = f" REPLACE ({typed})" if typed else ""
        connection.execute(f"CREATE TABLE {name} AS SELECT *{replaced} FROM rows")  # noqa: S608  (names of ours)
        connection.unregister("rows")
    for setting in ("enable_external_access = false", "lock_configuration = true"):
        connection.execute(f"SET {setting}")
    return connection


def export(results: Results, table: TableName, file: Path) -> int:
    """Write a table as CSV or Parquet, by the file's ending; return its number of rows.

    `records` has a column for each knob (`knob.NAME`) and each metric, so one row is one measurement.

    Raises:
        InputError: there is no such table, or the file has another ending.
        StoreError: the file cannot be written.

    """
    if file.suffix not in (".csv", ".parquet"):
        raise InputError(f"{file}: the name must end in .csv or .parquet")
    frame = results.to_frame(table)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        if file.suffix == ".parquet":
            _same_kinds(frame).to_parquet(file, compression="zstd", index=False)
        else:
            columns = frame.columns.difference(["frame_at_s", "frame_tokens"], sort=False)
            frame[columns].map(csv_cell, na_action="ignore").to_csv(file, index=False)
    except OSError as error:
        raise StoreError(f"{file}: {error.strerror or error}: nothing was exported") from error
    return len(frame)


def csv_cell(value: object) -> object:
    """A CSV cell: lists on one line, no control characters, and nothing that a spreadsheet would compute."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple | np.ndarray):
        value = ("; " if any(" " in str(one) for one in value) else ", ").join(map(str, value))
    if not isinstance(value, str):
        return value
    shown = printable(value)
    return f"'{shown}" if shown[:1] in ("=", "+", "-", "@") else shown


def _same_kinds(frame: pd.DataFrame) -> pd.DataFrame:
    """Convert columns with mixed types (false beside a number) to text: Parquet has one type per column."""
    mixed = [name for name in frame.columns if name.startswith("knob.") and frame[name].dtype == object]
    return frame.assign(**{name: frame[name].map(str, na_action="ignore") for name in mixed})


def _name(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'


def _first_lines(message: str) -> str:
    """DuckDB's error without its drawing of the statement."""
    return " ".join(message.partition("\nLINE ")[0].split())


def as_objects(answer: QueryResult) -> list[Mapping[str, object]]:
    """One object per row."""
    return [dict(zip(answer.columns, row, strict=True)) for row in answer.rows]
