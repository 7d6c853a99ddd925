"""The table of kernel times: the points of a journal that have times, as Parquet, one row a point and environment.

The environments themselves stand in the file's metadata, so that the table alone is evidence and can be read back.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dsabench.errors import InputError, StoreError
from dsabench.kernelbench.records import KernelMeasurement, read

TABLE_NAME = "kernels.parquet"
_ENVIRONMENTS = b"environments"
_TEXTS = ("operator", "candidate", "shape_id", "dtype")
_NUMBERS = ("median_us", "mad_us", "low_us", "high_us", "floor_us", "rel_err", "rounded_err",
            "ceiling_tb_s", "ceiling_tflop_s", "ceiling_link_gb_s", "sustain_s", "sustained_us", "sustained_power_w")  # fmt: skip
_COUNTS = (
    "n",
    "rows_checked",
    "bytes",
    "flops",
    "link_bytes",
    "sm_mhz",
    "memory_mhz",
    "temperature_c",
    "sustained_sm_mhz",
    "threads",
    "seed",
)
_OF_ENVIRONMENT = ("split", "fingerprint", "gpu", "torch", "packages")
"""Repeated from elsewhere so that the table can be queried without its metadata."""


def write_table(folder: Path, measurements: Sequence[KernelMeasurement]) -> Path:
    """Write the last measurement of every point in every environment.

    Raises:
        StoreError: disk full or read-only.

    """
    import pyarrow as pa  # noqa: PLC0415  (half a second)
    import pyarrow.parquet as pq  # noqa: PLC0415

    last = {(m.point, m.environment.fingerprint): m for m in measurements if m.status == "ok"}
    environments = {m.environment.fingerprint: m.environment.model_dump(mode="json") for m in last.values()}
    schema = pa.schema(
        [(name, pa.string()) for name in _TEXTS]
        + [(name, pa.float64()) for name in _NUMBERS]
        + [(name, pa.int64()) for name in _COUNTS]
        + [("sustained_slowed", pa.string()), ("graph", pa.bool_()), ("started_at", pa.timestamp("us", tz="UTC"))]
        + [(name, pa.string()) for name in _OF_ENVIRONMENT],
        metadata={_ENVIRONMENTS: json.dumps(environments).encode()},
    )
    file = folder / TABLE_NAME
    temporary = file.with_suffix(".tmp")
    try:
        table = pa.Table.from_pylist([_row(m) for m in last.values()], schema=schema)
        pq.write_table(table, temporary, compression="zstd")
        temporary.rename(file)
    except OSError as error:
        raise StoreError(f"{file}: {error.strerror or error}: the table was not written") from error
    return file


def read_points(folder: Path) -> tuple[KernelMeasurement, ...]:
    """All measurements of a folder's journal; of its table where the journal was not kept.

    Raises:
        InputError: a file cannot be read, or is no such table.

    """
    found = read(folder)
    return found or _read_table(folder / TABLE_NAME)


def _read_table(file: Path) -> tuple[KernelMeasurement, ...]:
    import pyarrow as pa  # noqa: PLC0415
    import pyarrow.parquet as pq  # noqa: PLC0415

    try:
        table = pq.read_table(file)
        environments = json.loads((table.schema.metadata or {})[_ENVIRONMENTS])
        rows: list[dict[str, Any]] = table.to_pylist()
        return tuple(
            KernelMeasurement.model_validate(
                {name: value for name, value in row.items() if name not in _OF_ENVIRONMENT}
                | {"status": "ok", "environment": environments[row["fingerprint"]]}
            )
            for row in rows
        )
    except FileNotFoundError:
        return ()
    except (OSError, KeyError, ValueError, pa.ArrowException) as error:
        raise InputError(f"{file}: not a table of kernel times: {error}") from error


def _row(m: KernelMeasurement) -> dict[str, object]:
    fields = m.model_dump(include={*_TEXTS, *_NUMBERS, *_COUNTS, "sustained_slowed", "graph", "started_at"})
    runtime = m.environment.runtime
    gpu = m.environment.hardware.gpus[0].name if m.environment.hardware.gpus else None
    packages = ",".join(f"{name}={version}" for name, version in sorted((runtime.packages or {}).items()))
    about = (m.split, m.environment.fingerprint, gpu, runtime.torch, packages)
    return {**fields, **dict(zip(_OF_ENVIRONMENT, about, strict=True))}
