"""SQL over journals and their samples: DuckDB reads the files where they lie, nothing is imported first."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from dsabench.errors import InputError, StoreError

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection, DuckDBPyRelation


_FIELDS = {
    "id": "VARCHAR", "occasion": "INTEGER", "boot": "VARCHAR", "study": "VARCHAR", "round": "INTEGER", "phase": "VARCHAR",
    "trial": "JSON", "environment": "JSON", "started_at": "TIMESTAMPTZ", "duration_s": "DOUBLE", "boot_s": "DOUBLE",
    "resolved": "JSON", "labels": "VARCHAR[]", "outcome": "JSON",
}  # fmt: skip
"""Of a line; naming them keeps DuckDB from guessing types out of the first lines."""

_RECORDS = """
CREATE TABLE records AS
SELECT row_number() OVER () AS record, filename AS journal, id, occasion, boot, study, coalesce(round, 0) AS round,
  coalesce(phase, 'search') AS phase, trial->>'$.kind' AS kind, trial->>'$.workload.name' AS workload,
  trial->>'$.runtime.kind' AS runtime, environment->>'$.runtime.version' AS runtime_version,
  trial->>'$.runtime.model' AS model, trial->'$.runtime.knobs' AS knobs,
  environment->>'$.hardware.gpus[0].name' AS gpu,
  coalesce(json_array_length(environment, '$.hardware.gpus'), 0)::INTEGER AS gpus,
  environment->>'$.fingerprint' AS fingerprint, started_at, duration_s, boot_s, coalesce(labels, []) AS labels,
  outcome->>'$.kind' AS outcome, outcome->>'$.stage' AS stage, outcome->>'$.fault' AS fault,
  outcome->>'$.message' AS message, outcome->>'$.samples' AS samples,
  coalesce(from_json(outcome->'$.warnings', '["VARCHAR"]'), []) AS warnings, trial, environment, resolved,
  outcome->'$.metrics' AS metrics_json
FROM read_ndjson($files, columns = {columns}, ignore_errors = true, filename = true, maximum_object_size = 67108864)
WHERE id IS NOT NULL AND trial IS NOT NULL AND outcome IS NOT NULL
QUALIFY row_number() OVER (PARTITION BY filename, id, fingerprint, occasion) = 1
ORDER BY record
"""
# The journal's own readers skip a line whose key stands there already; so does QUALIFY.

_METRICS = """
CREATE VIEW metrics AS
SELECT record, records.id, occasion, boot, study, phase, workload, knobs, fingerprint, started_at, entry.key AS metric,
  (entry.value->>'$.value')::DOUBLE AS value, (entry.value->>'$.n')::BIGINT AS n,
  (entry.value->>'$.ci_low')::DOUBLE AS ci_low, (entry.value->>'$.ci_high')::DOUBLE AS ci_high
FROM records, json_each(metrics_json) AS entry
WHERE metrics_json IS NOT NULL
"""

_SAMPLES = """
CREATE VIEW samples AS
SELECT of_record.record, of_record.id, of_record.occasion, of_record.boot, of_record.study, of_record.workload,
  request.* EXCLUDE (filename)
FROM read_parquet({files}, union_by_name = true, filename = true) AS request
JOIN sample_files AS of_record ON of_record.file = request.filename
"""

TABLES = ("records", "metrics", "samples")


@dataclass(frozen=True, slots=True)
class QueryResult:
    """What a query gave; None in a cell is SQL's NULL."""

    columns: tuple[str, ...]
    rows: tuple[tuple[object, ...], ...]


def query(journals: Sequence[Path], sql: str, limit: int | None = None) -> QueryResult:
    """Run one statement that reads over the tables `records`, `metrics` and `samples`.

    Raises:
        InputError: the statement is wrong or does not read, or a file is no journal.

    """
    import duckdb  # noqa: PLC0415  (a tenth of a second; only a query pays it)

    with opened(journals) as connection:
        try:
            found = connection.sql(_that_reads(connection, sql))
            zoned = [_ZONED in str(kind) for kind in found.types]
            columns = tuple(found.columns)
            plain = _without_zones(found) if any(zoned) else found
            rows = (plain if limit is None else plain.limit(limit)).fetchall()
        except duckdb.Error as error:
            raise InputError(_first_lines(str(error))) from error
    return QueryResult(columns, tuple(tuple(map(_cell, row, zoned)) for row in rows))


_READING = ("SELECT", "EXPLAIN", "MULTI")
"""DuckDB's types of statements; SHOW, DESCRIBE and SUMMARIZE are SELECT to it, and PIVOT is MULTI."""


def _that_reads(connection: DuckDBPyConnection, sql: str) -> str:
    """The statement itself.

    Raises:
        InputError: it writes, or there is none or more than one.

    """
    kinds = [statement.type.name for statement in connection.extract_statements(sql)]
    if len(kinds) != 1:
        raise InputError(f"{len(kinds)} statements: give one SELECT over {', '.join(TABLES)}")
    if kinds[0] not in _READING:
        raise InputError(f"{kinds[0]}: a query only reads: give one SELECT over {', '.join(TABLES)}")
    return sql


_ZONED = "TIMESTAMP WITH TIME ZONE"


def _without_zones(found: DuckDBPyRelation) -> DuckDBPyRelation:
    """The same columns with times in UTC: DuckDB makes Python values of zoned ones with pytz only."""
    kinds = [str(kind).replace(_ZONED, "TIMESTAMP") for kind in found.types]
    cells = [f"CAST(#{place} AS {kind}) AS {_name(column)}"
             for place, (column, kind) in enumerate(zip(found.columns, kinds, strict=True), start=1)]  # fmt: skip
    return found.project(", ".join(cells))


def _cell(value: object, zoned: bool) -> object:
    """A value as it was asked for, with the zone again that was taken from it."""
    if not zoned:
        return value
    if isinstance(value, datetime):
        return value.replace(tzinfo=UTC)
    if isinstance(value, list):
        return [_cell(one, zoned) for one in value]
    return {name: _cell(one, zoned) for name, one in value.items()} if isinstance(value, dict) else value


def export(journals: Sequence[Path], table: str, file: Path) -> int:
    """Write a table as CSV or Parquet, as the file's name ends; returns its rows.

    `records` gets a column for each knob (`knob.NAME`) and each metric, so that one row is one measurement.

    Raises:
        InputError: no such table, or the name ends in something else.
        StoreError: the file cannot be written.

    """
    import duckdb  # noqa: PLC0415

    forms = {".csv": "FORMAT csv, HEADER", ".parquet": "FORMAT parquet, COMPRESSION zstd"}
    if file.suffix not in forms:
        raise InputError(f"{file}: exports are written as .csv or .parquet")
    with opened(journals) as connection:
        chosen = _chosen(connection, table, file.suffix)
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            written = connection.execute(f"COPY ({chosen}) TO {_quoted(file)} ({forms[file.suffix]})").fetchone()
        except OSError as error:
            raise StoreError(f"{file}: {error.strerror}: nothing was exported") from error
        except duckdb.IOException as error:
            raise StoreError(f"{file}: {_first_lines(str(error))}") from error
        except duckdb.Error as error:
            raise InputError(_first_lines(str(error))) from error
    return 0 if written is None else int(written[0])


def opened(journals: Sequence[Path]) -> DuckDBPyConnection:
    """A database in memory with the tables of these journals; it loads no extension, so it asks no network.

    Raises:
        InputError: a file is no journal.

    """
    import duckdb  # noqa: PLC0415

    connection = duckdb.connect(":memory:")
    for setting in ("autoinstall_known_extensions", "autoload_known_extensions"):
        connection.execute(f"SET {setting} = false")
    connection.execute("SET TimeZone = 'UTC'")
    try:
        columns = "{" + ", ".join(f"{name}: '{kind}'" for name, kind in _FIELDS.items()) + "}"
        files = [str(path) for path in journals]
        connection.execute(_RECORDS.replace("{columns}", columns), {"files": files})
        connection.execute(_METRICS)
        _add_samples(connection)
    except duckdb.Error as error:
        connection.close()
        raise InputError(_first_lines(str(error))) from error
    return connection


def _add_samples(connection: DuckDBPyConnection) -> None:
    """The view of samples over the Parquet files that are there; those of evals are no requests."""
    named = connection.execute(
        "SELECT record, journal, samples, id, occasion, boot, study, workload FROM records WHERE samples LIKE '%.parquet'"
    ).fetchall()
    found = [
        (record, str(file), *rest)
        for record, journal, name, *rest in named
        if (file := Path(journal).parent / name).is_file()
    ]
    connection.execute(
        "CREATE TABLE sample_files (record BIGINT, file VARCHAR, id VARCHAR, occasion INTEGER, boot VARCHAR, "
        "study VARCHAR, workload VARCHAR)"
    )
    if not found:
        connection.execute("CREATE VIEW samples AS SELECT * FROM sample_files")
        return
    import pyarrow as pa  # noqa: PLC0415

    names = ("record", "file", "id", "occasion", "boot", "study", "workload")
    _rows = pa.table({name: [row[i] for row in found] for i, name in enumerate(names)})
    connection.register("found_files", _rows)
    connection.execute("INSERT INTO sample_files SELECT * FROM found_files")
    connection.execute(_SAMPLES.replace("{files}", _listed(row[1] for row in found)))


def _chosen(connection: DuckDBPyConnection, table: str, suffix: str) -> str:
    """The rows to export; CSV has no lists."""
    if table == "records":
        return _wide(connection)
    if table == "metrics":
        return "SELECT * FROM metrics ORDER BY ALL"
    columns = "* EXCLUDE (frame_at_s, frame_tokens)" if suffix == ".csv" else "*"
    return f"SELECT {columns} FROM samples ORDER BY record, index"  # noqa: S608  (one of the two above)


def _wide(connection: DuckDBPyConnection) -> str:
    """Records with a column for each knob and metric."""
    knobs = connection.execute(
        "SELECT DISTINCT k FROM (SELECT unnest(json_keys(knobs)) AS k FROM records) ORDER BY k"
    ).fetchall()
    metrics = connection.execute(
        "SELECT DISTINCT k FROM (SELECT unnest(json_keys(metrics_json)) AS k FROM records WHERE metrics_json IS NOT NULL)"
        " ORDER BY k"
    ).fetchall()
    cells = [f"knobs->>{_text(_pointer(k))} AS {_name(f'knob.{k}')}" for (k,) in knobs]
    cells += [f"(metrics_json->>{_text(_pointer(m, 'value'))})::DOUBLE AS {_name(m)}" for (m,) in metrics]
    plain = (
        "* EXCLUDE (knobs, metrics_json, trial, environment, resolved, labels, warnings), array_to_string(labels, ', ') AS labels,"
        " array_to_string(warnings, '; ') AS warnings"
    )
    return f"SELECT {', '.join([plain, *cells])} FROM records ORDER BY record"  # noqa: S608  (quoted)


def _pointer(*names: str) -> str:
    """A JSON pointer (RFC 6901), in which a dot of a metric's name is no step."""
    return "".join("/" + name.replace("~", "~0").replace("/", "~1") for name in names)


def _text(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _name(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'


def _quoted(path: Path) -> str:
    return _text(str(path))


def _listed(files: Iterable[str]) -> str:
    return "[" + ", ".join(map(_text, files)) + "]"


def _first_lines(message: str) -> str:
    """DuckDB's error without its drawing of the statement."""
    return " ".join(message.partition("\nLINE ")[0].split())


def as_objects(answer: QueryResult) -> list[Mapping[str, object]]:
    """One object a row."""
    return [dict(zip(answer.columns, row, strict=True)) for row in answer.rows]
