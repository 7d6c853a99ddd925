"""Whether a load that still runs can meet its SLO in as large a share of the requests as is asked."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf
from time import perf_counter

from dsabench.load.plan import OpenLoop, Pacing
from dsabench.model.workload import Slo

_LATE_S = 0.5
"""What the client itself may have sent a request late by, or tell its end late by."""


class OutOfReach(Exception):
    """So many requests have missed the SLO that the share which was asked for cannot be met any more."""

    def __init__(self, at_most: float) -> None:
        super().__init__(f"at most {at_most:.0%} can meet the SLO")
        self.at_most = at_most
        """The share that would meet it if all others did."""


@dataclass(slots=True)
class ReachCheck:
    """Told how many requests have ended, says when the share is out of reach.

    A request that meets the SLO has ended by a time that is known before it is sent. So where `d` requests should have ended and `e`
    have, at least `d - e` missed it, whichever they are. Mutable: its clock starts when it is told first.
    """

    latest_s: Sequence[float]
    """When each request ends at the latest if it meets the SLO, in seconds after the start; ascending."""
    share: float
    _started_s: float | None = field(default=None, init=False)

    def told(self, ended: int) -> None:
        """Raise OutOfReach once it is certain."""
        now_s = perf_counter()
        if self._started_s is None:
            self._started_s = now_s
        should_have = bisect_right(self.latest_s, now_s - self._started_s - _LATE_S)
        count = len(self.latest_s)
        at_most = (count - max(0, should_have - ended)) / count
        if at_most < self.share:
            raise OutOfReach(at_most)


def latest_ends_s(slo: Slo, pacing: Pacing, tokens: Sequence[int | None]) -> list[float]:
    """When each request ends at the latest if it meets the SLO, in seconds after the start; ascending, `inf` where nothing says.

    Only where no request waits for a slot or for an answer: latencies count from the sending.
    """
    if not isinstance(pacing, OpenLoop) or pacing.limit is not None:
        return [inf] * len(tokens)
    return sorted(due_s + _longest_s(slo, count) for due_s, count in zip(pacing.due_s, tokens, strict=True))


def _longest_s(slo: Slo, tokens: int | None) -> float:
    """The longest answer of so many tokens that meets the SLO."""
    found = [limit for limit in (slo.e2e_ms, slo.e2e_from_schedule_ms) if limit is not None]
    first = min((limit for limit in (slo.ttft_ms, slo.ttft_from_schedule_ms) if limit is not None), default=None)
    if first is not None and slo.tpot_ms is not None and tokens is not None:
        found.append(first + slo.tpot_ms * (tokens - 1))
    return min(found, default=inf) / 1e3
