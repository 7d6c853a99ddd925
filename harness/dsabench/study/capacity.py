"""The highest load under which one running server meets the SLO, by bisection."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from dsabench.errors import TrialFault
from dsabench.model.capacity import LoadProbe
from dsabench.model.workload import Workload

_CLOSE = 1.05
"""Ratio of two rates that are as good as equal."""
_TOO_MUCH = frozenset({"request_errors", "request_timeout"})
"""Faults of a load that the server does not bear, and lives on."""


class Capacity(NamedTuple):
    """What the bisection found."""

    load: float | None
    """The highest load that meets the SLO, in requests per second or in flight; None if not even the lowest one does."""
    probes: tuple[LoadProbe, ...]
    """In the order measured."""


async def find_capacity(workload: Workload, attainment_at: Callable[[float], Awaitable[float]]) -> Capacity:
    """Try the highest load, the lowest one, and then the geometric mean of the two between which the SLO breaks, until the probes
    are used up or the two are next to each other.

    A load under which requests fail or time out does not meet it.

    Args:
        workload: with `capacity`.
        attainment_at: load → share of the requests that met the SLO.

    Raises:
        TrialFault: the lowest load fails, or the server is lost.

    """
    search = workload.capacity
    assert search is not None, "only a workload with `capacity` has one"
    probes: list[LoadProbe] = []

    async def meets(load: float, *, must_run: bool = False) -> bool:
        try:
            attainment = await attainment_at(load)
        except TrialFault as fault:
            if fault.kind not in _TOO_MUCH or must_run:
                raise
            probes.append(LoadProbe(load=load, fault=fault.kind))
            return False
        probes.append(LoadProbe(load=load, attainment=attainment))
        return attainment >= search.attainment

    high, low, whole = getattr(workload, workload.load_key), search.lowest, workload.load_key == "max_concurrency"
    if await meets(high):
        return Capacity(high, tuple(probes))
    if not await meets(low, must_run=True):
        return Capacity(None, tuple(probes))
    while len(probes) < search.probes and (load := _between(low, high, whole=whole)) is not None:
        if await meets(load):
            low = load
        else:
            high = load
    return Capacity(low, tuple(probes))


def _between(low: float, high: float, *, whole: bool) -> float | None:
    """The load to try next; None if the two are next to each other."""
    middle = math.sqrt(low * high)
    if whole:
        load = min(max(round(middle), math.floor(low) + 1), math.ceil(high) - 1)
        return load if low < load < high else None
    return float(f"{middle:.3g}") if high / low > _CLOSE else None
