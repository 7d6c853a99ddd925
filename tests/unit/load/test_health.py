from __future__ import annotations

from array import array
from dataclasses import replace

import numpy as np
import pytest

from dsabench.load.client.monitor import WorkerVitals
from dsabench.load.judge.validity import ClientHealth, TypicalTimes, judge_client

CALM = WorkerVitals(
    wall_s=2.0, cpu_s=0.3, loop_cpu_s=0.2, lags_s=array("d", [0.0002] * 200), gc_pauses=1, gc_s=0.001, gc_max_s=0.001,
    backlog_samples=800, backlog_hits=8, busy_connections=100.0,
)  # fmt: skip


def health(
    *vitals: WorkerVitals,
    late_s: tuple[float, ...] = (0.0001,) * 5,
    request_s: float = 1.0,
    tokens_s: tuple[float, float] = (0.1, 0.02),
) -> ClientHealth:
    return judge_client(vitals, [10_000] * len(vitals), np.array(late_s), TypicalTimes(request_s, *tokens_s))


def test_an_idle_loop_is_on_time() -> None:
    calm = health(CALM)
    assert calm.saturated is None
    assert calm.cpu_share == pytest.approx(0.1)
    assert calm.lag_p50_ms == pytest.approx(0.2)
    assert calm.send_lag_max_ms == pytest.approx(0.1)
    assert (calm.gc_pauses, calm.gc_max_ms) == (1, pytest.approx(1.0))
    # 1 % of the looks found bytes; each connection is read every 20 ms
    assert calm.backlog_ms == pytest.approx(0.2)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"loop_cpu_s": 1.98}, "99% of a core"),
        ({"lags_s": array("d", [0.0] * 160 + [0.2] * 40)}, "wake-ups were over 200 ms late"),
        ({"backlog_hits": 800, "busy_connections": 1000.0}, "bytes lay 200 ms in its sockets"),
        ({"gc_s": 0.5}, "garbage collector ran 25% of the time"),
        ({"gc_max_s": 0.6}, "garbage collector stood it still for 600 ms"),
    ],
)
def test_one_bad_worker_among_good_ones_is_saturation(changes: dict[str, object], reason: str) -> None:
    saturated = health(CALM, replace(CALM, **changes), CALM).saturated  # type: ignore[arg-type]
    assert saturated is not None
    assert reason in saturated
    assert health(CALM, CALM).saturated is None


def test_requests_that_leave_late_are_saturation() -> None:
    late_s = (0.001,) * 8 + (0.2,) * 4
    saturated = health(CALM, late_s=late_s, request_s=0.5).saturated
    assert saturated is not None
    assert "requests left over 200 ms late" in saturated
    assert "lower max_concurrency" in saturated
    assert health(CALM, late_s=late_s, request_s=5.0).saturated is None


def test_cpu_adds_up_over_workers_and_the_rest_is_the_worst() -> None:
    both = health(CALM, replace(CALM, cpu_s=0.5, loop_cpu_s=0.4))
    assert (both.cpu_s, both.cpu_share, both.workers) == (pytest.approx(0.8), pytest.approx(0.2), 2)


def late(lag_ms: float, wait_share: float | None, first_token_s: float, per_token_s: float) -> ClientHealth:
    """A loop that is so late at every point of the grid."""
    wait_s = None if wait_share is None else wait_share * 2.0
    vitals = replace(CALM, lags_s=array("d", [lag_ms / 1e3] * 80), core_wait_s=wait_s, core_turns=100)
    return health(vitals, tokens_s=(first_token_s, per_token_s))


def test_lateness_is_judged_by_what_was_measured() -> None:
    """Two busy cores: 37 ms late, where the first token took 55 ms."""
    assert late(37.5, 0.6, 0.055, 0.2).saturated == (
        "its event loop was 37.0 ms late on average and waited for a core 60% of the time, which is 67% of 55 ms to the "
        "first token; lower max_concurrency or request_rate, or give the client a core of its own"
    )
    assert late(6.5, 0.15, 1.0, 0.005).saturated is not None  # 6 of 5 ms between tokens: the gaps are the client's
    assert late(6.5, 0.05, 1.0, 0.005).saturated is None  # not for want of a core
    calm = late(2.5, 0.02, 1.0, 0.1)
    assert (calm.saturated, calm.doubt) == (None, None)
    tail = late(2.5, 0.05, 1.0, 0.1)
    assert tail.doubt is not None
    assert tail.doubt.startswith(
        "it waited for a core 5% of the time, so about as many of the latencies, the slowest, "
    )
    doubtful = late(2.5, None, 1.0, 0.02)
    assert doubtful.saturated is None
    assert doubtful.doubt == "its event loop was 2.0 ms late on average, which is 10% of 20 ms between tokens"
    assert (doubtful.late_ms, doubtful.core_wait_share) == (pytest.approx(2.0), None)


def test_what_preemption_costs_is_no_lateness() -> None:
    assert late(0.9, 0.02, 0.001, 0.0005).doubt is None  # below half a millisecond more than a timer's
    assert late(4.5, 0.02, 0.005, 0.02).saturated is None
    assert late(4.5, 0.15, 0.005, 0.02).saturated is not None  # the core was somebody else's


def test_a_client_without_a_core_is_void_whatever_its_timers_say() -> None:
    waiting = late(0.5, 0.3, 1.0, 0.1)
    assert waiting.saturated is not None
    assert waiting.saturated.startswith("it waited for a core 30% of the time; ")
    doubtful = late(0.5, 0.15, 1.0, 0.1)
    assert (doubtful.saturated, doubtful.doubt) == (
        None,
        "it waited for a core 15% of the time, so about as many of the latencies, the slowest, may be its own",
    )


def test_a_mean_of_few_looks_is_chance() -> None:
    vitals = replace(CALM, lags_s=array("d", [0.03] * 39), core_wait_s=1.0, core_turns=9)
    assert health(vitals, tokens_s=(0.02, 0.01)).saturated is None
    assert health(replace(vitals, lags_s=array("d", [0.03] * 40)), tokens_s=(0.02, 0.01)).saturated is not None
