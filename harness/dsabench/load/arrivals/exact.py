"""Arrivals as bench_serving draws them (serving.py, get_request)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from dsabench.load.arrivals.protocol import Times
from dsabench.model.sample import Prompt


class Departures(NamedTuple):
    """When requests are due, seconds after the start, and until when the generator of requests is busy."""

    due_s: Times
    end_s: float
    """bench_serving draws a gap after each request, the last one too, and its clock runs until that is over."""


def draw_departures(
    count: int, rate_req_s: float, legacy: np.random.RandomState, *, burstiness: float = 1.0
) -> Departures:
    """Exponential gaps of mean 1 / rate from the state that the dataset left behind; none at an infinite rate.

    `burstiness` other than 1, which bench_serving does not have, makes them gamma distributed with that shape and the
    same mean (as vllm's benchmark does).
    """
    if math.isinf(rate_req_s):
        return Departures(np.zeros(count, np.float64), 0.0)
    if burstiness == 1.0:
        gaps_s = legacy.exponential(1.0 / rate_req_s, size=count)
    else:
        gaps_s = legacy.gamma(burstiness, 1.0 / (rate_req_s * burstiness), size=count)
    ends_s = np.cumsum(gaps_s)
    return Departures(np.concatenate(([0.0], ends_s[:-1])), float(ends_s[-1]))


def space_evenly(count: int, rate_req_s: float) -> Departures:
    """Every 1 / rate seconds."""
    due_s = np.arange(count, dtype=np.float64) / rate_req_s
    return Departures(due_s, float(due_s[-1]))


def follow_trace(prompts: Sequence[Prompt]) -> Departures:
    """When the trace sends them (datasets/mooncake.py, get_mooncake_request_over_time)."""
    due_s = np.array([prompt.due_s or 0.0 for prompt in prompts], np.float64)
    return Departures(due_s, float(due_s[-1]))
