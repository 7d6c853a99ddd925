"""How many workers a plan needs."""

from __future__ import annotations

import os
from math import ceil

from dsabench.load.client.share import Schedule
from dsabench.load.plan import Plan

_STREAMS = 2500
"""That one worker carries: at 50 frames a second each, about 40 % of a core of the slow kind."""
_REQUESTS_PER_S = 1000.0


def wanted_workers(plan: Plan, schedule: Schedule) -> int:
    """As many as were asked for, or as the load needs and the cores that this process may use allow."""
    sessions = len(schedule.sessions)
    if plan.workers is not None:
        return max(1, min(plan.workers, schedule.most_open))
    streams = schedule.most_open
    if schedule.slots is None and schedule.due_s is not None:
        span_s = max(schedule.due_s[-1] - schedule.due_s[0], 1e-9) if sessions else 1.0
        streams = min(streams, ceil(sessions / span_s / _REQUESTS_PER_S * _STREAMS))
    return max(1, min(ceil(streams / _STREAMS), len(os.sched_getaffinity(0))))
