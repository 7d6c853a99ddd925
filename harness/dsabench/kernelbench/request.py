"""What the conducting process asks of a worker, as lines of JSON on its standard input: the request, then what to skip.

What is measured already depends on where the worker runs, so it is told only after the worker has said that.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Literal, NamedTuple

Action = Literal["list", "check", "bench"]


class KernelPoint(NamedTuple):
    """One candidate at one shape."""

    operator: str
    candidate: str
    shape_id: str
    dtype: str


@dataclass(frozen=True, slots=True)
class TimingLimits:
    """When a point is stable. Samples come in until the interval is narrow, at most `max_samples` or `max_s`."""

    min_samples: int = 15
    max_samples: int = 400
    max_s: float = 5.0
    half_width: float = 0.02
    """Largest half of the median's 95 % interval, as a share of the median."""
    sustain_s: float = 0.0
    """How long each candidate then runs back to back, with its GPU's clock and power read meanwhile; 0: not at all."""


@dataclass(frozen=True, slots=True)
class KernelBenchRequest:
    """Names are glob patterns (`torch_*`), empty for all; `shapes` may be ids, patterns, `small` or `grid`."""

    action: Action
    operators: tuple[str, ...] = ()
    candidates: tuple[str, ...] = ()
    shapes: tuple[str, ...] = ()
    dtypes: tuple[str, ...] = ()
    device: Literal["auto", "cpu", "cuda"] = "auto"
    threads: int | None = None
    """Of torch on a CPU; None: all cores that the process may run on."""
    seed: int = 0
    seeds: int = 1
    """Of a check: on so many seeds, from `seed` on."""
    budget_s: float | None = None
    """Of measuring: the start of the worker, its imports and the ceilings are not in it."""
    patience_s: float = 300.0
    """A worker that says nothing for so long is ended, and its point recorded as crashed: kernels may wait for ever."""
    limits: TimingLimits = TimingLimits()

    def line(self) -> str:
        """As JSON."""
        return json.dumps(asdict(self))


def read_request(line: str) -> KernelBenchRequest:
    """The request of a line."""
    data = json.loads(line)
    for name in ("operators", "candidates", "shapes", "dtypes"):
        data[name] = tuple(data[name])
    return KernelBenchRequest(**{**data, "limits": TimingLimits(**data["limits"])})


def read_points(line: str) -> frozenset[KernelPoint]:
    """The points of a line: those that are done already."""
    return frozenset(KernelPoint(*point) for point in json.loads(line))
