"""The highest load under which one running server meets the SLO, by bisection."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from dsabench.errors import TrialFault
from dsabench.load.judge.reach import OutOfReach
from dsabench.model.capacity import CapacitySearch, LoadProbe
from dsabench.model.workload import Workload

_CLOSE = 1.05
"""Ratio of two rates that are as good as equal."""
_STEP = 1.5
"""From `start` on each load is this times the last one, or its reciprocal."""
_TOO_MUCH = frozenset({"request_errors", "request_timeout"})
"""Faults of a load that the server does not bear, and lives on."""


class Capacity(NamedTuple):
    """What the bisection found."""

    load: float | None
    """The highest load that meets the SLO, in requests per second or in flight; None if not even the lowest one does."""
    probes: tuple[LoadProbe, ...]
    """In the order measured."""


async def find_capacity(workload: Workload, attainment_at: Callable[[float], Awaitable[float]]) -> Capacity:
    """Find two loads between which the SLO breaks, then try the geometric mean of the two, until the probes are used up or the two
    are next to each other.

    The two are searched from `start` in steps; without it they are the highest load and the lowest one, unless the highest meets
    the SLO. A load under which requests fail or time out does not meet it, nor one that was stopped because it
    could not any more.

    A first rate that alone did not meet the SLO is tried once more, and the search goes on from there if it does then: a fresh machine
    may still compile kernels for batches that the rehearsal had not.

    Args:
        workload: with `capacity`.
        attainment_at: load → share of the requests that met the SLO.

    Raises:
        TrialFault: the lowest load fails, or the server is lost.

    """
    search = workload.capacity
    assert search is not None, "only a workload with `capacity` has one"
    met, probes = await _bisect(workload, search, attainment_at)
    first, *others = probes
    stands_alone = met is not None and not search.is_met_by(first) and all(map(search.is_met_by, others))
    # Loads in flight have a rehearsal each.
    if stands_alone and first.fault is None and workload.load_key == "request_rate":
        probes.append(await _tried(first.load, attainment_at, must_run=False))
        if search.is_met_by(probes[-1]):
            met, more = await _bisect(workload, search, attainment_at, first.load)
            probes += more
    return Capacity(met, tuple(probes))


async def _bisect(
    workload: Workload,
    search: CapacitySearch,
    attainment_at: Callable[[float], Awaitable[float]],
    met: float | None = None,
) -> tuple[float | None, list[LoadProbe]]:
    """The highest load that met the SLO, at least the one that is known to, and what was tried."""
    probes: list[LoadProbe] = []
    broken: float | None = None
    most = search.probes - (met is not None)
    while len(probes) < most:
        load = _next(workload, search, met, broken, is_last=len(probes) == most - 1)
        if load is None:
            break
        probe = await _tried(load, attainment_at, must_run=load == search.lowest)
        probes.append(probe)
        if search.is_met_by(probe):
            met = load
        else:
            broken = load
    return met, probes


async def _tried(load: float, attainment_at: Callable[[float], Awaitable[float]], *, must_run: bool) -> LoadProbe:
    try:
        return LoadProbe(load=load, attainment=await attainment_at(load))
    except OutOfReach as missed:
        return LoadProbe(load=load, attainment=missed.at_most, stopped=True)
    except TrialFault as fault:
        if fault.kind not in _TOO_MUCH or must_run:
            raise
        return LoadProbe(load=load, fault=fault.kind)


def _next(
    workload: Workload, search: CapacitySearch, met: float | None, broken: float | None, *, is_last: bool
) -> float | None:
    """The load to try next, with the highest that met the SLO and the lowest that did not; None if nothing is left to try. If none
    has met it, the last load is the lowest.
    """
    highest, whole = float(getattr(workload, workload.load_key)), workload.load_key == "max_concurrency"
    if met is not None and broken is not None:
        return _between(met, broken, whole=whole)
    if met is not None:
        return None if met >= highest else min(highest, max(_rounded(met * _STEP, whole=whole), met + whole))
    if broken is None:
        return highest if search.start is None else search.start
    if broken <= search.lowest:
        return None
    down = search.lowest if search.start is None or is_last else _rounded(broken / _STEP, whole=whole)
    return max(search.lowest, down)


def _rounded(load: float, *, whole: bool) -> float:
    return float(round(load)) if whole else float(f"{load:.3g}")


def _between(low: float, high: float, *, whole: bool) -> float | None:
    """The load between two; None if they are next to each other."""
    middle = math.sqrt(low * high)
    if whole:
        load = min(max(round(middle), math.floor(low) + 1), math.ceil(high) - 1)
        return load if low < load < high else None
    return _rounded(middle, whole=False) if high / low > _CLOSE else None
