from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest

from dsabench.errors import TrialFault
from dsabench.load.judge.summary import summarise
from dsabench.load.judge.validity import ClientHealth
from dsabench.load.load_test import LoadRun
from dsabench.model.record import Measured
from dsabench.model.sample import NO_FRAMES, Frames, RequestSample
from dsabench.model.workload import Slo, Workload

WORKLOAD = Workload(name="w", dataset="random-ids", input_len=10, output_len=4, num_prompts=2)
CALM = ClientHealth(0.5, 0.1, 0.2, 1.0, 2.0, 0.3)


def sample(index: int = 0, sent_s: float = 0.0, **changes: Any) -> RequestSample:
    """Frames of 2, 1 and 3 tokens after 100, 150 and 300 ms; [DONE] after 310 ms."""
    frames = Frames.of((sent_s + after_s, tokens) for after_s, tokens in ((0.1, 2), (0.15, 1), (0.3, 3)))
    fields = {
        "index": index, "scheduled_s": sent_s - 0.05, "sent_s": sent_s, "done_s": sent_s + 0.31,
        "input_len": 10, "output_len_asked": 6, "frames": frames,
    }  # fmt: skip
    return RequestSample(**fields | changes)


def measure(*samples: RequestSample, client: ClientHealth = CALM, workload: Workload = WORKLOAD) -> Measured:
    return summarise(LoadRun(samples, datetime.now(UTC), 2.0, client), workload)


def test_latencies_follow_bench_serving_but_for_the_tokens_of_the_first_event() -> None:
    metrics = measure(sample()).metrics
    assert metrics["ttft_ms.mean"].value == pytest.approx(100.0)
    assert metrics["e2e_ms.mean"].value == pytest.approx(310.0)
    assert metrics["tpot_ms.mean"].value == pytest.approx((310 - 100) / 4)  # two of six tokens came first
    # one gap of 50 ms, three of 150 / 3; the first frame's second token gives none
    assert (metrics["itl_ms.mean"].n, metrics["itl_ms.mean"].value) == (4, pytest.approx(50.0))
    assert metrics["ttft_from_schedule_ms.mean"].value == pytest.approx(150.0)
    assert metrics["e2e_from_schedule_ms.max"].value == pytest.approx(360.0)
    assert metrics["queue_wait_ms.min"].value == pytest.approx(50.0)


def test_totals() -> None:
    metrics = measure(sample(), sample(1, 1.0), sample(2, error="reset: gone")).metrics
    expected = {
        "completed": 2, "failed": 1, "duration_s": 2.0, "input_tokens": 20, "output_tokens": 12,
        "request_throughput_req_s": 1.0, "input_throughput_tok_s": 10.0, "output_throughput_tok_s": 6.0,
        "total_throughput_tok_s": 16.0, "concurrency.mean": 0.31, "client.cpu_s": 0.5, "client.lag_ms.max": 2.0,
        "client.send_lag_ms.max": 0.3,
    }  # fmt: skip
    assert {name: metrics[name].value for name in expected} == pytest.approx(expected)
    assert (metrics["completed"].n, metrics["failed"].n) == (2, 3)


def test_one_token_gives_no_tpot_and_no_gap() -> None:
    names = set(measure(sample(frames=Frames.of([(0.1, 1)]))).metrics)
    assert not {name for name in names if name.startswith(("tpot_ms", "itl_ms"))}


def test_what_the_server_does_not_tell_is_absent() -> None:
    assert not {"cached_tokens", "accept_length.mean"} & set(measure(sample()).metrics)
    told = measure(sample(accept_length=2.0, cached_tokens=0), sample(1, accept_length=3.0), sample(2)).metrics
    assert (told["accept_length.mean"].value, told["accept_length.mean"].n) == (2.5, 2)
    assert (told["cached_tokens"].value, told["cached_tokens"].n) == (0.0, 1)


def test_without_a_completed_request_there_is_no_latency() -> None:
    metrics = measure(sample(error="timeout: x", frames=NO_FRAMES)).metrics
    assert metrics["completed"].value == 0
    assert not [name for name in metrics if "_ms." in name and not name.startswith("client")]


@pytest.mark.parametrize(("count", "given"), [(9, ""), (10, "p50 p90"), (90, "p50 p90 p95"), (459, "p50 p90 p95 p99")])
def test_percentiles_need_their_numbers(count: int, given: str) -> None:
    measured = measure(*(sample(i, sent_s=i * 0.01, done_s=i * 0.01 + 0.31 + i * 1e-3) for i in range(count)))
    assert [label for label in ("p50", "p90", "p95", "p99") if f"e2e_ms.{label}" in measured.metrics] == given.split()
    refused = [line for line in measured.warnings if line.startswith("no p") and "e2e_ms" in line]
    assert len(refused) == 4 - len(given.split())
    if count == 90:
        assert refused[0].startswith("no p99 from fewer than 459 observations: ttft_ms (90)")
    if given:
        latencies = [310.0 + i for i in range(count)]
        assert measured.metrics["e2e_ms.p90"].value == pytest.approx(np.percentile(latencies, 90))


def test_warns_of_what_would_mislead() -> None:
    short = sample(frames=Frames.of([(0.1, 1)]), cached_tokens=5, input_tokens=11)
    lines = measure(short, client=ClientHealth(0.5, 0.1, 1.0, 35.0, 80.0, 0.3)).warnings
    assert "1 of 1 answers have fewer tokens than were asked for" in lines
    assert (
        "the server counts other prompt lengths than were sent in 1 of 1 requests: 11 tokens for 10 (1.1 times); the input "
        "throughput counts what the server says"
    ) in lines
    assert "the prefix cache answered 50% of the prompt tokens: prefill is faster than the workload asks" in lines
    assert any("35 ms late" in line for line in lines)
    limited = WORKLOAD.model_copy(update={"request_rate": 10.0, "max_concurrency": 1})
    assert (
        "max_concurrency held back 1 of 1 requests: the open loop was not open"
        in measure(sample(), workload=limited).warnings
    )


def test_a_saturated_client_measures_nothing() -> None:
    client = ClientHealth(2.0, 1.0, 1.0, 2.0, 3.0, 0.1, saturated="it used 100% of a core")
    with pytest.raises(TrialFault, match="it used 100% of a core") as caught:
        measure(sample(), client=client)
    assert (caught.value.kind, caught.value.stage) == ("client_saturated", "summarise")


def test_an_answer_in_one_event_has_no_tpot_and_no_goodput() -> None:
    """Public report sglang#36272: a server that holds its answers back would attain every limit."""
    slo = WORKLOAD.model_copy(update={"slo": Slo(ttft_ms=500.0, tpot_ms=25.0, itl_ms=50.0)})
    whole = sample(frames=Frames.of([(0.31, 6)]))
    measured = measure(whole, workload=slo)
    assert not [name for name in measured.metrics if name.startswith(("tpot_ms", "itl_ms"))]
    assert measured.metrics.keys() & {"slo_attainment", "slo_attainment.tpot_ms", "goodput_req_s"} == set()
    assert measured.metrics["slo_attainment.ttft_ms"].value == 1.0
    assert (
        "1 of 1 answers came in one event: their TTFT is the time of the whole answer, and their TPOT and ITL were not "
        "observed"
    ) in measured.warnings
    assert "no goodput: a latency that the SLO limits was not observed of some answers" in measured.warnings
    one_token = sample(frames=Frames.of([(0.31, 1)]), output_len_asked=1)
    assert measure(one_token, workload=slo).metrics["slo_attainment"].value == 1.0
