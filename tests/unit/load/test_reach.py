"""A load is stopped once it is certain that it does not meet the SLO often enough, and not before."""

from __future__ import annotations

from math import inf

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsabench.load.judge import reach
from dsabench.load.judge.reach import OutOfReach, ReachCheck, latest_ends_s
from dsabench.load.plan import ClosedLoop, OpenLoop
from dsabench.model.workload import Slo

SLO = Slo(ttft_ms=3000, tpot_ms=50)


def test_a_request_that_meets_the_slo_has_ended_by_a_known_time() -> None:
    pacing = OpenLoop([0.0, 1.0, 2.0])
    assert latest_ends_s(SLO, pacing, [101, 1, 21]) == pytest.approx([4.0, 6.0, 8.0])
    assert latest_ends_s(SLO, pacing, [101, None, 21]) == pytest.approx([6.0, 8.0, inf])
    assert latest_ends_s(Slo(ttft_ms=3000), pacing, [1, 1, 1]) == [inf] * 3
    assert latest_ends_s(Slo(e2e_ms=500, ttft_ms=3000, tpot_ms=50), pacing, [9, 9, 9]) == pytest.approx([0.5, 1.5, 2.5])
    # Where a request waits for a slot its latencies begin at an unknown time.
    assert latest_ends_s(SLO, OpenLoop([0.0], limit=1), [9]) == latest_ends_s(SLO, ClosedLoop(1), [9]) == [inf]


@given(
    ends=st.lists(st.tuples(st.floats(0.1, 40), st.floats(0.1, 40)), min_size=1, max_size=40),
    share=st.sampled_from([0.5, 0.9, 1.0]),
)
def test_it_never_stops_what_meets_the_slo(ends: list[tuple[float, float]], share: float) -> None:
    """Against the truth: (when it had to end, when it ended) of each request, looked at ten times a second."""
    due = sorted(latest for latest, _ in ends)
    met = np.mean([ended <= latest for latest, ended in ends])
    clock = pytest.MonkeyPatch()
    now = 1000.0
    with clock.context() as patch:
        patch.setattr(reach, "perf_counter", lambda: now)
        check = ReachCheck(due, share)
        try:
            for tick in range(420):
                now = 1000.0 + tick / 10
                check.told(sum(ended <= tick / 10 for _, ended in ends))
        except OutOfReach as missed:
            assert met <= missed.at_most < share  # noqa: PT017  (it may also never stop)


def test_it_stops_at_the_first_request_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 50.0
    monkeypatch.setattr(reach, "perf_counter", lambda: now)
    check = ReachCheck([1.0] * 10, 0.9)
    check.told(0)
    now = 51.4
    check.told(0)  # the client may have been half a second late
    now = 51.6
    check.told(9)
    with pytest.raises(OutOfReach, match="at most 80% can meet the SLO"):
        check.told(8)
