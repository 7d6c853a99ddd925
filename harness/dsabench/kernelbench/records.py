"""The journal of kernel times, one point a line.

It is no journal of records: a record is of a server's boot (study, round, runtime, workload, samples), and a point has
none of these; hundreds of points would stand between the trials that every reader of a journal is after.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from pydantic import AwareDatetime, ValidationError

from dsabench.errors import InputError, StoreError
from dsabench.kernelbench.request import KernelPoint
from dsabench.kernelbench.summary import TimingSummary
from dsabench.model.environment import Environment
from dsabench.model.value import Value, digest
from dsakernels.shape import OperatorShape, parse

FILE_NAME = "kernels.jsonl"
_HELD_OUT = 5

Status = Literal["ok", "wrong", "unavailable", "unstable", "failed", "crashed"]


class KernelMeasurement(Value):
    """One point. Times are there where the status is `ok`; a reason where it is not."""

    schema_version: Literal[1] = 1
    operator: str
    candidate: str
    shape_id: str
    dtype: str
    status: Status
    reason: str | None = None
    rel_err: float | None = None
    rounded_err: float | None = None
    """Of a candidate that rounds its inputs by design: against the reference over those."""
    rows_checked: int | None = None
    median_us: float | None = None
    mad_us: float | None = None
    low_us: float | None = None
    high_us: float | None = None
    n: int | None = None
    bytes: int | None = None
    flops: int | None = None
    link_bytes: int | None = None
    """Those of `bytes` that came over the host's link, where its speed was measured."""
    floor_us: float | None = None
    """Time of the least work at the bandwidth and speed measured in the same run."""
    ceiling_tb_s: float | None = None
    ceiling_tflop_s: float | None = None
    """That bandwidth (see `timers`; in older records a copy alone) and speed (products of large bfloat16 matrices)."""
    ceiling_link_gb_s: float | None = None
    """That of a copy from pinned host memory, where `link_bytes` come over it."""
    sm_mhz: int | None = None
    memory_mhz: int | None = None
    temperature_c: int | None = None
    sustain_s: float | None = None
    """How long calls then ran back to back with warm caches (`--sustain`). Without the rest: they have to be restored between."""
    sustained_us: float | None = None
    """Of one of these calls."""
    sustained_sm_mhz: int | None = None
    """Median in the second half of that."""
    sustained_power_w: float | None = None
    """Mean over that, from the energy counter."""
    sustained_slowed: str | None = None
    """What held the clock down meanwhile, as NVML says it: `power cap`, `software thermal`, …"""
    graph: bool | None = None
    """On a GPU: whether the call ran from a CUDA graph; where it did not, launches may be in the time."""
    seed: int
    threads: int | None = None
    started_at: AwareDatetime
    environment: Environment

    @property
    def point(self) -> KernelPoint:
        """What was measured."""
        return KernelPoint(self.operator, self.candidate, self.shape_id, self.dtype)

    @property
    def times(self) -> TimingSummary | None:
        """None where there are none."""
        if self.median_us is None or self.mad_us is None or self.low_us is None or self.high_us is None:
            return None
        return None if self.n is None else TimingSummary(self.median_us, self.mad_us, self.low_us, self.high_us, self.n)

    @property
    def split(self) -> Literal["fit", "held_out"]:
        """One shape in five is held out of fits, the same in every run."""
        return "held_out" if int(digest(self.shape_id)[:8], 16) % _HELD_OUT == 0 else "fit"


def append(folder: Path, measurement: KernelMeasurement) -> None:
    """Write one line and sync it.

    Raises:
        StoreError: disk full or read-only.

    """
    append_line(folder / FILE_NAME, measurement.model_dump_json(exclude_none=True))


def append_line(file: Path, text: str) -> None:
    """Write one line and sync it.

    Raises:
        StoreError: disk full or read-only.

    """
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("a+b") as stream:
            stream.write(_mend(file) + text.encode() + b"\n")
            stream.flush()
            os.fsync(stream.fileno())
    except OSError as error:
        raise StoreError(f"{file}: {error.strerror}: the measurement was not written") from error


def _mend(file: Path) -> bytes:
    """A newline where the last writer was stopped within a line."""
    data = file.read_bytes() if file.exists() else b""
    return b"" if not data or data.endswith(b"\n") else b"\n"


def read(folder: Path) -> tuple[KernelMeasurement, ...]:
    """All measurements in the order written; a line that is none, such as a torn one, is left out.

    Raises:
        InputError: the file cannot be read.

    """
    return tuple(m for m in map(_parsed, _lines(folder / FILE_NAME)) if m is not None)


def unreadable(folder: Path) -> int:
    """How many lines `read` leaves out.

    Raises:
        InputError: the file cannot be read.

    """
    return sum(_parsed(line) is None for line in _lines(folder / FILE_NAME))


def _lines(file: Path) -> list[bytes]:
    try:
        return list(filter(None, file.read_bytes().splitlines()))
    except FileNotFoundError:
        return []
    except OSError as error:
        raise InputError(f"{file}: {error.strerror}") from error


def _parsed(line: bytes) -> KernelMeasurement | None:
    try:
        return KernelMeasurement.model_validate_json(line)
    except ValidationError:
        return None


def latest(
    measurements: Sequence[KernelMeasurement], fingerprint: str | None = None
) -> dict[KernelPoint, KernelMeasurement]:
    """The last measurement of every point, of one environment if told."""
    return {m.point: m for m in measurements if fingerprint in (None, m.environment.fingerprint)}


def shape_of(shape_id: str) -> OperatorShape:
    """The shape of an id.

    Raises:
        InputError: it is no id of a shape that this version knows.

    """
    try:
        return parse(shape_id)
    except ValueError as error:
        raise InputError(str(error)) from error
