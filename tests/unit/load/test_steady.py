from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dsabench.load.judge.metrics import accept_lengths
from dsabench.load.judge.steady_state import NoSteadyState, SteadyWindow, steady_metrics, steady_window
from dsabench.load.judge.summary import summarise
from dsabench.model.sample import NO_FRAMES
from factories import make_workload
from unit.load.made import closed_loop, run_of, sample

FOUR = make_workload(max_concurrency=4)


def test_a_closed_loop_is_steady_from_the_first_end_to_the_last_send() -> None:
    """Four slots out of step by 0.25 s, ten rounds of 1 s: full from 0.75 s, first end at 1 s, last send at 9.75 s."""
    samples = closed_loop(4, 10)
    assert steady_window(samples, FOUR) == pytest.approx(SteadyWindow(1.0, 9.75))


def test_figures_of_the_window_know_nothing_of_ramp_and_drain() -> None:
    slow_start = [replace(one, done_s=one.done_s, sent_s=one.sent_s) for one in closed_loop(4, 10)]
    metrics = steady_metrics(slow_start, SteadyWindow(1.0, 9.75))
    assert metrics["steady.duration_s"].value == pytest.approx(8.75)
    assert metrics["steady.concurrency.mean"].value == pytest.approx(4.0)
    # ten tokens a second from each of four
    assert metrics["steady.output_throughput_tok_s"].value == pytest.approx(40.0, rel=0.02)
    assert metrics["steady.request_throughput_req_s"].value == pytest.approx(4.0, rel=0.02)
    assert metrics["steady.ttft_ms.p50"].value == pytest.approx(100.0)
    assert metrics["steady.itl_ms.mean"].value == pytest.approx(100.0)
    assert metrics["steady.tpot_ms.mean"].value == pytest.approx(100.0)
    assert metrics["steady.ttft_ms.p50"].n == 35  # sent after 1.0 s and up to 9.75 s


def test_whole_run_and_window_differ_by_ramp_and_drain() -> None:
    samples = closed_loop(4, 10)
    metrics = summarise(run_of(samples, 10.75), FOUR).metrics
    assert metrics["output_throughput_tok_s"].value == pytest.approx(400 / 10.75)
    assert metrics["steady.output_throughput_tok_s"].value > metrics["output_throughput_tok_s"].value


def test_tokens_of_requests_from_before_the_window_count_where_they_arrive() -> None:
    early = sample(0, 0.0, 10.0, tokens=10)  # a token each second
    metrics = steady_metrics(
        [early, *(sample(i, i * 0.5, 0.4, tokens=1) for i in range(1, 15))], SteadyWindow(2.5, 6.5)
    )
    inside = 4 + len([i for i in range(1, 15) if 2.5 < i * 0.5 + 0.4 <= 6.5])
    assert metrics["steady.output_throughput_tok_s"].value == pytest.approx(inside / 4.0)
    assert metrics["steady.itl_ms.mean"].n == 4


def test_an_open_loop_is_steady_between_first_end_and_last_arrival() -> None:
    samples = [sample(i, i * 0.1, 1.0) for i in range(60)]
    window = steady_window(samples, make_workload(max_concurrency=None, request_rate=10.0))
    assert window == pytest.approx(SteadyWindow(1.0, 5.9))


def test_the_window_waits_until_the_loop_is_full() -> None:
    """The first answer ends after 0.1 s, with one request in flight; four are in flight from 3 s on."""
    slow_ramp = [sample(0, 0.0, 0.1), *(sample(i, i * 1.0, 20.0) for i in range(1, 4))]
    rest = [sample(4 + i, 3.0 + i * 0.5, 0.5) for i in range(40)]
    window = steady_window([*slow_ramp, *rest], FOUR)
    assert isinstance(window, SteadyWindow)
    assert window.start_s == 3.0


def test_a_moment_on_the_edge_belongs_to_what_follows_the_start_and_precedes_the_end() -> None:
    assert SteadyWindow(1.0, 2.0).holds(np.array([0.5, 1.0, 1.5, 2.0, 2.5])).tolist() == [
        False,
        False,
        True,
        True,
        False,
    ]


def test_a_request_that_failed_at_once_begins_nothing() -> None:
    early = sample(40, 0.0, 0.01, error="connect: refused", frames=NO_FRAMES)
    assert steady_window([*closed_loop(4, 10), early], FOUR) == pytest.approx(SteadyWindow(1.0, 9.75))
    lost = [sample(i, i * 0.1, error="reset: gone", frames=NO_FRAMES) for i in range(20)]
    assert steady_window(lost, FOUR) == NoSteadyState("no request ended well")


def test_a_trace_brings_its_own_times_so_slots_need_not_be_full() -> None:
    trace = make_workload(dataset="mooncake", input_len=None, output_len=None, max_concurrency=1000)
    assert isinstance(steady_window([sample(i, i * 0.1, 1.0) for i in range(60)], trace), SteadyWindow)


@pytest.mark.parametrize(
    ("samples", "workload", "reason"),
    [
        (closed_loop(4, 10), make_workload(request_rate=1.0, arrivals="ramp", ramp_to=9.0), "a ramp changes its rate"),
        (closed_loop(4, 2), FOUR, "8 requests are too few"),
        (closed_loop(4, 3), FOUR, "7 requests were sent between ramp-up and drain"),
        (closed_loop(4, 20), make_workload(max_concurrency=5), "there were never 5 requests in flight"),
        ([sample(i) for i in range(20)], make_workload(max_concurrency=None), "before the first one ended"),
        ([sample(i, 0.0) for i in range(20)], make_workload(max_concurrency=20), "before the first one ended"),
        (
            [sample(0, 0.0, 0.5), *(sample(i, i * 0.1, 5.0) for i in range(1, 30))],
            make_workload(max_concurrency=None, request_rate=10.0),
            "it would last 2.4 s, and a request takes 5 s",
        ),
        (
            [sample(i, i * 0.1, 0.5 + i * 0.05) for i in range(100)],
            make_workload(max_concurrency=None, request_rate=10.0),
            "the requests in flight went from",
        ),
        (
            [*closed_loop(4, 4), *(sample(16 + i, 4.0 + i, 1.0) for i in range(30))],
            FOUR,
            "of 4 requests were in flight, averaged",
        ),
    ],
)  # fmt: skip
def test_without_a_steady_state_there_is_a_reason(samples, workload, reason) -> None:
    window = steady_window(samples, workload)
    assert isinstance(window, NoSteadyState)
    assert reason in window.reason
    measured = summarise(run_of(samples, 60.0), workload)
    assert f"no steady state: {window.reason}" in measured.warnings
    assert not [name for name in measured.metrics if name.startswith("steady.")]


def test_accept_length_by_request_by_token_and_by_rank() -> None:
    told = [
        sample(0, tokens=10, accept_length=2.0, dp_rank=0),  # five steps
        sample(1, tokens=60, accept_length=3.0, dp_rank=1),  # twenty
        sample(2, tokens=10, accept_length=1.0, dp_rank=1),  # ten
        sample(3, tokens=10),
    ]
    metrics = accept_lengths(told)
    assert {name: (metric.value, metric.n) for name, metric in metrics.items()} == {
        "accept_length.mean": (2.0, 3),
        "accept_length.weighted": (80 / 35, 3),
        "accept_length.dp_rank_0": (2.0, 1),
        "accept_length.dp_rank_1": (2.0, 2),
    }
    assert accept_lengths(told[3:]) == {}


def test_accept_length_of_the_window_is_of_requests_inside_it() -> None:
    samples = [
        replace(one, accept_length=3.0 if one.sent_s > 1.0 else 1.0) for one in closed_loop(4, 10)
    ]  # a cold start accepts less
    metrics = summarise(run_of(samples, 10.75), FOUR).metrics
    assert metrics["steady.accept_length.mean"].value == 3.0
    assert metrics["accept_length.mean"].value == pytest.approx(np.mean([s.accept_length for s in samples]))
