"""Which loop a workload's requests are sent in."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dsabench.load.plan import ClosedLoop, OpenLoop, Pacing, Sessions

if TYPE_CHECKING:
    from dsabench.load.datasets.prompts import Prompts
    from dsabench.model.workload import Workload


def pacing_for(workload: Workload, prompts: Prompts) -> Pacing:
    """Closed where only a concurrency is given, by the clock where a rate or a trace says when, or turn after turn."""
    by_clock = workload.request_rate is not None or workload.dataset == "mooncake"
    due_s = prompts.due_s.tolist()
    if workload.sessions is not None and prompts.turns is not None:
        think_s = [workload.sessions.think_s] * len(prompts.measured)
        return Sessions(prompts.turns, think_s, due_s if by_clock else None, workload.max_concurrency)
    if workload.max_concurrency is not None and not by_clock:
        return ClosedLoop(workload.max_concurrency)
    return OpenLoop(due_s, workload.max_concurrency)
