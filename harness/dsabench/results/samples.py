"""Per-request samples as Parquet: one row per request, its frames as two lists of equal length."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from dsabench.errors import InputError
from dsabench.model.sample import Frames, RequestSample
from dsabench.results.journal import whole_file

_TIMES = ("scheduled_s", "sent_s", "done_s", "frame_at_s.list.element")
_PER_S = 2**20
"""Times are kept to 1 / 2^20 s, about a microsecond: what a client sees is not finer, and the other bits would take two thirds of the file."""
COMPRESSION: dict[str, Any] = {
    "compression": "zstd",
    "compression_level": 9,
    "column_encoding": dict.fromkeys(_TIMES, "BYTE_STREAM_SPLIT"),
    "use_dictionary": ["finish_reason", "count_source", "error", "frame_tokens.list.element"],
    "write_statistics": False,
}
"""Of the Parquet file: times that grow differ in their last bytes, so that each byte's place by itself takes half of the room."""


def samples_name(trial_id: str, fingerprint: str, occasion: int) -> str:
    """Path of a record's samples, relative to the folder of the journal. It is as unique as the record's key."""
    return f"samples/{trial_id[:16]}-{fingerprint[:8]}-{occasion}.parquet"


def write_samples(folder: Path, name: str, samples: Sequence[RequestSample]) -> None:
    """Write the whole file or nothing (temporary name, sync, rename).

    Raises:
        StoreError: the disk is full or read-only.

    """
    import pyarrow as pa  # noqa: PLC0415  (half a second; only a run that measured pays it)
    import pyarrow.parquet as pq  # noqa: PLC0415

    schema = pa.schema(
        [
            ("index", pa.int32()),
            ("scheduled_s", pa.float64()),
            ("sent_s", pa.float64()),
            ("done_s", pa.float64()),
            ("input_len", pa.int32()),
            ("output_len_asked", pa.int32()),
            ("input_tokens", pa.int32()),
            ("cached_tokens", pa.int32()),
            ("accept_length", pa.float64()),
            ("dp_rank", pa.int32()),
            ("finish_reason", pa.string()),
            ("count_source", pa.string()),
            ("error", pa.string()),
            ("frame_at_s", pa.list_(pa.float64())),
            ("frame_tokens", pa.list_(pa.int32())),
        ]
    )
    columns = {column: [getattr(sample, column) for sample in samples] for column in schema.names[:-2]}
    columns |= {column: _rounded(columns[column]) for column in _TIMES if column in columns}
    columns["frame_at_s"] = [_rounded(sample.frames.at_s) for sample in samples]
    columns["frame_tokens"] = [sample.frames.tokens for sample in samples]
    with whole_file(folder / name, "the samples were not written") as file:
        pq.write_table(pa.table(columns, schema=schema), file, **COMPRESSION)


def _rounded(times_s: Iterable[float]) -> list[float]:
    return [round(time_s * _PER_S) / _PER_S for time_s in times_s]


def read_samples(file: Path) -> tuple[RequestSample, ...]:
    """Read the samples. Columns that an older version did not write keep their defaults.

    Raises:
        InputError: it is missing, or no Parquet file of samples.

    """
    import pyarrow as pa  # noqa: PLC0415
    import pyarrow.parquet as pq  # noqa: PLC0415

    samples = []
    try:
        for row in pq.read_table(file).to_pylist():
            frames = zip(row.pop("frame_at_s"), row.pop("frame_tokens"), strict=True)
            samples.append(RequestSample(**row, frames=Frames.of(frames)))
    except FileNotFoundError as error:
        raise InputError(f"{file}: no such file") from error
    except OSError as error:
        raise InputError(f"{file}: cannot be read: {error.strerror or error}") from error
    except (pa.ArrowException, KeyError, TypeError, ValueError) as error:
        raise InputError(f"{file}: not a Parquet file of request samples") from error
    return tuple(samples)
