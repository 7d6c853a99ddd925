"""The records of a folder as tables: one row per record, metric or request.

`results query`, `results export` and the Python API all take their rows from here. A damaged line is therefore left
out everywhere, and a journal of a newer dsabench is refused everywhere.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from dsabench.errors import InputError
from dsabench.model.record import Failed, Measured, Record, Scored
from dsabench.model.value import KnobValue
from dsabench.results.journal import read_journal
from dsabench.results.places import find_journals

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

TableName = Literal["records", "metrics", "samples"]
TABLES: tuple[TableName, ...] = get_args(TableName)


@dataclass(frozen=True, slots=True)
class Results:
    """The records of one or more journals in written order, each with its journal."""

    rows: tuple[tuple[Path, Record], ...]
    problems: tuple[str, ...]
    """Damaged lines, as `file:line: what`."""

    @property
    def records(self) -> tuple[Record, ...]:
        """The records without their journals."""
        return tuple(record for _, record in self.rows)

    def to_frame(self, table: TableName = "records") -> pd.DataFrame:
        """One table as a pandas DataFrame.

        `records` has a column for each knob (`knob.NAME`) and each metric, `metrics` a row per metric of a record,
        `samples` a row per request.

        Raises:
            InputError: there is no such table.

        """
        import pandas as pd  # noqa: PLC0415  (a third of a second, which only a notebook pays)

        if table not in TABLES:
            raise InputError(f"{table}: no such table (known: {', '.join(TABLES)})")
        if table == "records":
            # Nullable types: the integers of a knob stay integers although other records lack it.
            return pd.DataFrame.from_records(wide_rows(self)).convert_dtypes()
        frame: pd.DataFrame = (metrics_table(self) if table == "metrics" else samples_table(self)).to_pandas()
        return frame


def load_results(*places: str | Path) -> Results:
    """Read every record at or below the places: folders of results, or journals.

    Raises:
        InputError: there is no journal, or a newer dsabench wrote one.

    """
    rows: list[tuple[Path, Record]] = []
    problems: list[str] = []
    for path in (journal for place in places for journal in find_journals(Path(place))):
        found = read_journal(path)
        rows += ((path, record) for record in found.records)
        problems += found.problems
    return Results(tuple(rows), tuple(problems))


def record_row(journal: Path, record: Record) -> dict[str, Any]:
    """The columns of a record without its knobs and metrics."""
    environment, outcome = record.environment, record.outcome
    gpus = environment.hardware.gpus
    failed = outcome if isinstance(outcome, Failed) else None
    measured = outcome if isinstance(outcome, Measured | Scored) else None
    return {
        "journal": str(journal),
        "id": record.id,
        "occasion": record.occasion,
        "boot": record.boot,
        "study": record.study,
        "round": record.round,
        "phase": record.phase,
        "turn": record.turn,
        "kind": record.trial.kind,
        "workload": record.trial.workload.name,
        "runtime": record.trial.runtime.kind,
        "runtime_version": environment.runtime.version,
        "model": record.trial.runtime.model,
        "gpu": gpus[0].name if gpus else None,
        "gpus": len(gpus),
        "fingerprint": environment.fingerprint,
        "started_at": record.started_at,
        "duration_s": record.duration_s,
        "boot_s": record.boot_s,
        "labels": list(record.labels),
        "outcome": outcome.kind,
        "stage": failed and failed.stage,
        "fault": failed and failed.fault,
        "message": failed and failed.message,
        "samples": measured and measured.samples,
        "warnings": [] if measured is None else list(measured.warnings),
    }


def wide_rows(results: Results) -> list[dict[str, Any]]:
    """One row per record with a column for each knob and metric; None where a record lacks it."""
    knobs = sorted({name for record in results.records for name in record.trial.runtime.knobs})
    metrics = sorted({name for record in results.records for name in _metrics(record)})
    rows = []
    for number, (journal, record) in enumerate(results.rows, start=1):
        row = {"record": number, **record_row(journal, record)}
        values: Mapping[str, KnobValue] = record.trial.runtime.knobs
        row |= {f"knob.{name}": values.get(name) for name in knobs}
        row |= {name: _metrics(record).get(name, _ABSENT).get("value") for name in metrics}
        rows.append(row)
    return rows


_ABSENT: Mapping[str, Any] = {}


def _metrics(record: Record) -> Mapping[str, Mapping[str, Any]]:
    outcome = record.outcome
    if isinstance(outcome, Failed):
        return _ABSENT
    return {name: {"value": metric.value, "n": metric.n, "ci_low": metric.ci_low, "ci_high": metric.ci_high}
            for name, metric in outcome.metrics.items()}  # fmt: skip


def records_table(results: Results) -> pa.Table:
    """One row per record. Nested values are JSON: knobs, metrics, trial, environment, resolved."""
    import pyarrow as pa  # noqa: PLC0415  (a tenth of a second; only tables pay it)

    rows = []
    for number, (journal, record) in enumerate(results.rows, start=1):
        data = record.model_dump(mode="json", exclude_none=True)
        rows.append(
            {
                "record": number,
                **record_row(journal, record),
                "knobs": json.dumps(data["trial"]["runtime"].get("knobs", {})),
                "metrics_json": None if record.outcome.kind == "failed" else json.dumps(data["outcome"]["metrics"]),
                **{name: json.dumps(data.get(name, {})) for name in ("trial", "environment", "resolved")},
            }
        )
    return pa.Table.from_pylist(rows, _record_schema())


def _record_schema() -> pa.Schema:
    import pyarrow as pa  # noqa: PLC0415

    kinds = {
        **dict.fromkeys(("record", "occasion", "round", "turn", "gpus"), pa.int64()),
        **dict.fromkeys(("duration_s", "boot_s"), pa.float64()),
        **dict.fromkeys(("labels", "warnings"), pa.list_(pa.string())),
        "started_at": pa.timestamp("us", "UTC"),
    }
    names = (
        *("record", "journal", "id", "occasion", "boot", "study", "round", "phase", "turn", "kind", "workload"),
        *("runtime", "runtime_version", "model", "knobs", "gpu", "gpus", "fingerprint", "started_at", "duration_s"),
        *("boot_s", "labels", "outcome", "stage", "fault", "message", "samples", "warnings", "trial", "environment"),
        *("resolved", "metrics_json"),
    )
    return pa.schema([(name, kinds.get(name, pa.string())) for name in names])


def metrics_table(results: Results) -> pa.Table:
    """One row per metric of a record."""
    import pyarrow as pa  # noqa: PLC0415

    rows = []
    for number, record in enumerate(results.records, start=1):
        of_record = {
            "record": number,
            "id": record.id,
            "occasion": record.occasion,
            "boot": record.boot,
            "study": record.study,
            "phase": record.phase,
            "workload": record.trial.workload.name,
            "knobs": json.dumps(record.model_dump(mode="json")["trial"]["runtime"]["knobs"]),
            "fingerprint": record.environment.fingerprint,
            "started_at": record.started_at,
        }
        rows += [{**of_record, "metric": name, **metric} for name, metric in _metrics(record).items()]
    kinds = {
        **dict.fromkeys(("record", "occasion", "n"), pa.int64()),
        **dict.fromkeys(("value", "ci_low", "ci_high"), pa.float64()),
        "started_at": pa.timestamp("us", "UTC"),
    }
    names = (
        *("record", "id", "occasion", "boot", "study", "phase", "workload", "knobs", "fingerprint", "started_at"),
        *("metric", "value", "n", "ci_low", "ci_high"),
    )
    return pa.Table.from_pylist(rows, pa.schema([(name, kinds.get(name, pa.string())) for name in names]))


def sample_files(results: Results) -> Iterator[tuple[int, Path, Record]]:
    """Number, file and record of each load test with samples. Samples of evals are answers, not requests, so they are
    left out.
    """
    for number, (journal, record) in enumerate(results.rows, start=1):
        outcome = record.outcome
        if isinstance(outcome, Measured) and outcome.samples is not None and outcome.samples.endswith(".parquet"):
            file = journal.parent / outcome.samples
            if file.is_file():
                yield number, file, record


def samples_table(results: Results) -> pa.Table:
    """One row per request."""
    import pyarrow as pa  # noqa: PLC0415
    import pyarrow.parquet as pq  # noqa: PLC0415

    tables = []
    for number, file, record in sample_files(results):
        requests = pq.read_table(file)
        own: Sequence[tuple[str, Any, Any]] = (
            ("record", number, pa.int64()),
            ("id", record.id, pa.string()),
            ("occasion", record.occasion, pa.int64()),
            ("boot", record.boot, pa.string()),
            ("study", record.study, pa.string()),
            ("workload", record.trial.workload.name, pa.string()),
        )
        for place, (name, value, kind) in enumerate(own):
            requests = requests.add_column(place, name, pa.array([value] * requests.num_rows, kind))
        tables.append(requests)
    if not tables:
        kinds = {"record": pa.int64(), "occasion": pa.int64()}
        names = ("record", "id", "occasion", "boot", "study", "workload")
        return pa.schema([(name, kinds.get(name, pa.string())) for name in names]).empty_table()
    return pa.concat_tables(tables, promote_options="default")
