from __future__ import annotations

import pytest
from pydantic import ValidationError

from dsabench.errors import InputError
from dsabench.load.judge.metrics import goodput, per_request_ms
from dsabench.load.judge.summary import summarise
from dsabench.model.record import Trial
from dsabench.model.sample import NO_FRAMES, Frames
from dsabench.model.study import Objective
from dsabench.model.value import canonical_json
from dsabench.model.workload import Slo
from dsabench.stats.intervals import wilson
from dsabench.study.space_check import refuse_unprovable
from factories import make_spec, make_workload
from unit.load.made import run_of, sample

FAST, SLOW = sample(0, last_s=1.0), sample(1, last_s=3.0)  # TTFT, gaps: 100 ms, 300 ms
LOST = sample(2, error="reset: gone", frames=NO_FRAMES)


def test_a_request_is_good_when_it_meets_all_limits() -> None:
    metrics = goodput([FAST, SLOW, LOST], Slo(ttft_ms=200, e2e_ms=5000), 2.0)
    assert (metrics["goodput_req_s"].value, metrics["goodput_req_s"].n) == (pytest.approx(0.5), 3)
    assert metrics["slo_attainment"].value == pytest.approx(1 / 3)
    assert metrics["slo_attainment.ttft_ms"].value == pytest.approx(1 / 3)
    assert metrics["slo_attainment.e2e_ms"].value == pytest.approx(2 / 3)


def test_the_interval_is_wilsons_of_all_requests_sent() -> None:
    metrics = goodput([FAST, SLOW, LOST], Slo(ttft_ms=200), 2.0)
    low, high = wilson(1, 3) or (None, None)
    share, rate = metrics["slo_attainment"], metrics["goodput_req_s"]
    assert (share.ci_low, share.ci_high) == (low, high)
    assert (rate.ci_low, rate.ci_high) == pytest.approx((low * 1.5, high * 1.5))


def test_each_latency_is_judged_as_documented() -> None:
    bursts = sample(0, last_s=1.0, frames=Frames.of([(0.1, 1), (0.2, 1), (0.9, 2)]), scheduled_s=-0.5, done_s=1.0)
    observed = {name: values[0] for name, values in per_request_ms([bursts]).items()}
    assert observed == pytest.approx({
        "ttft_ms": 100, "tpot_ms": 300, "itl_ms": 350, "e2e_ms": 1000, "ttft_from_schedule_ms": 600,
        "e2e_from_schedule_ms": 1500,
    })  # fmt: skip
    single = sample(0, frames=Frames.of([(0.1, 1)]))
    assert (per_request_ms([single])["tpot_ms"][0], per_request_ms([single])["itl_ms"][0]) == (0.0, 0.0)


def test_a_limit_may_be_met_exactly() -> None:
    assert goodput([FAST], Slo(e2e_ms=1000.0), 1.0)["slo_attainment"].value == 1.0


def test_nothing_completed_is_no_good_request() -> None:
    metrics = goodput([LOST], Slo(ttft_ms=1), 1.0)
    assert (metrics["goodput_req_s"].value, metrics["slo_attainment"].value) == (0.0, 0.0)


def test_a_workload_with_an_slo_reports_goodput_and_one_without_is_as_before() -> None:
    asked = make_workload(slo={"ttft_ms": 200})
    assert summarise(run_of([FAST, SLOW], 3.0), asked).metrics["slo_attainment"].value == 0.5
    assert not [name for name in summarise(run_of([FAST], 1.0), make_workload()).metrics if "slo" in name]
    plain = Trial(runtime=make_spec(), workload=make_workload())
    assert "slo" not in canonical_json(plain)
    assert Trial(runtime=make_spec(), workload=asked).id != plain.id


def test_an_slo_limits_something() -> None:
    with pytest.raises(ValidationError, match="needs at least one limit"):
        Slo()
    with pytest.raises(ValidationError):
        Slo(ttft_ms=0)


def test_goodput_as_an_objective_needs_an_slo() -> None:
    objective = Objective(metric="goodput_req_s", direction="maximize")
    refuse_unprovable(objective, [make_workload(slo={"ttft_ms": 1})])
    with pytest.raises(InputError, match="needs an slo in every workload; short has none"):
        refuse_unprovable(objective, [make_workload()])
