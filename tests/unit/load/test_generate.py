"""Against a real server on a real socket that knows when it wrote what."""

from __future__ import annotations

import asyncio
import itertools
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest

from closed_port import nobody_listens
from dsabench.errors import TrialFault
from dsabench.load.judge.summary import summarise
from dsabench.load.load_test import LoadRun, run_load_test, warm_up
from dsabench.load.requests import LoadTarget
from dsabench.model.workload import Workload
from paced_server import Pace, PacedServer, connections_to


def workload(**changes: Any) -> Workload:
    fields = {"name": "w", "dataset": "random-ids", "input_len": 16, "output_len": 8, "num_prompts": 12}
    return Workload.model_validate(fields | {"max_concurrency": 4} | changes)


def target(server: PacedServer) -> LoadTarget:
    return LoadTarget(server.base_url, "m", vocab_size=256)


async def load(pace: Pace, **changes: Any) -> tuple[LoadRun, PacedServer]:
    async with PacedServer(pace) as server:
        return await run_load_test(target(server), workload(**changes), on_progress=lambda _done, _all: None), server


@pytest.mark.timing
async def test_times_are_the_servers_schedule() -> None:
    run, server = await load(Pace(ttft_s=0.06, gap_s=0.02), num_prompts=8)
    for sample, served in zip(run.samples, sorted(server.served, key=lambda s: s.received_s), strict=True):
        assert sample.error is None
        assert sample.frames[0].at_s - sample.sent_s == pytest.approx(0.06, abs=0.02)
        assert sample.done_s - sample.sent_s == pytest.approx(0.06 + 7 * 0.02, abs=0.03)
        assert len(sample.frames) == len(served.wrote_s) == 8
    origin = np.median([s.wrote_s[0] for s in server.served]) - np.median([s.frames[0].at_s for s in run.samples])
    late = [
        frame.at_s + origin - wrote
        for sample, served in zip(run.samples, server.served, strict=True)
        for frame, wrote in zip(sample.frames, served.wrote_s, strict=True)
    ]
    assert np.median(np.abs(late)) < 0.005


@pytest.mark.timing
async def test_the_run_says_when_and_how_long() -> None:
    before = datetime.now(UTC)
    run, server = await load(Pace(ttft_s=0.05, gap_s=0.01), num_prompts=8, max_concurrency=4)
    assert before <= run.started_at <= datetime.now(UTC)
    assert run.duration_s == pytest.approx(2 * (0.05 + 7 * 0.01), abs=0.08)
    assert [sample.index for sample in run.samples] == list(range(8))
    assert [sample.input_tokens for sample in run.samples] == [16] * 8
    assert server.served[0].body["sampling_params"] == {"temperature": 0.0, "max_new_tokens": 8, "ignore_eos": True}


@pytest.mark.timing
async def test_a_closed_loop_never_exceeds_its_slots_and_keeps_them_busy() -> None:
    run, server = await load(Pace(ttft_s=0.01, gap_s=0.002), num_prompts=40, max_concurrency=5)
    assert server.most_in_flight == 5
    assert server.connections_made == 5
    assert summarise(run, workload()).metrics["concurrency.mean"].value > 4.0


@pytest.mark.timing
async def test_an_open_loop_sends_on_time_whatever_the_server_does() -> None:
    run, server = await load(
        Pace(ttft_s=0.3, gap_s=0.0), num_prompts=50, max_concurrency=None, request_rate=100.0, arrivals="constant"
    )
    received = np.array([served.received_s for served in server.served])
    np.testing.assert_allclose(received - received[0], np.arange(50) / 100.0, atol=0.03)
    assert server.most_in_flight > 20
    assert max(sample.sent_s - sample.scheduled_s for sample in run.samples) < 0.03


async def test_poisson_arrivals_follow_their_seed() -> None:
    run, _ = await load(Pace(ttft_s=0.0, gap_s=0.0), num_prompts=30, max_concurrency=None, request_rate=200.0)
    again, _ = await load(Pace(ttft_s=0.0, gap_s=0.0), num_prompts=30, max_concurrency=None, request_rate=200.0)
    times = np.array([sample.scheduled_s for sample in run.samples])
    np.testing.assert_allclose(times, [sample.scheduled_s for sample in again.samples], atol=1e-9)
    assert np.std(np.diff(times)) > 0.001


async def test_without_rate_or_limit_everything_goes_at_once() -> None:
    _, server = await load(Pace(ttft_s=0.0, together=30), num_prompts=30, max_concurrency=None)
    assert server.most_in_flight == 30


@pytest.mark.timing
async def test_a_stall_shows_in_latency_from_schedule() -> None:
    """Coordinated omission: one answer pauses for 0.6 s, nine wait; measured from sending, only one looks slow."""
    run, _ = await load(
        Pace(ttft_s=0.005, gap_s=0.001, fault="pause", faulty=frozenset({1})),
        num_prompts=12, max_concurrency=1, request_rate=25.0, arrivals="constant",
    )  # fmt: skip
    from_send = [sample.done_s - sample.sent_s for sample in run.samples]
    from_schedule = [sample.done_s - sample.scheduled_s for sample in run.samples]
    assert sum(latency > 0.2 for latency in from_send) == 1
    assert sum(latency > 0.2 for latency in from_schedule) >= 6
    metrics = summarise(run, workload()).metrics
    assert metrics["e2e_from_schedule_ms.p50"].value > 5 * metrics["e2e_ms.p50"].value
    assert metrics["queue_wait_ms.max"].value > 300


@pytest.mark.parametrize(
    "pace",
    [
        Pace(ttft_s=0.0, gap_s=0.001, pieces=9),
        Pace(ttft_s=0.0, gap_s=0.0),
        Pace(ttft_s=0.0, gap_s=0.0, newline=b"\r\n", comments=True, repeats=True, tokens_per_frame=3),
    ],
    ids=["cut", "burst", "noise"],
)
async def test_every_token_is_counted_once(pace: Pace) -> None:
    run, _ = await load(pace, output_len=50, num_prompts=8)
    assert [sample.output_tokens for sample in run.samples] == [50] * 8
    assert [sample.error for sample in run.samples] == [None] * 8


@pytest.mark.parametrize(
    ("fault", "kind", "message"),
    [
        ("http503", "request_errors", 'http 503: {"error": {"message": "busy"}}'),
        ("close", "request_errors", "reset: "),
        ("nonsense", "request_errors", "protocol: "),
        ("reset", "request_errors", "cut: "),
        ("garbage", "bad_response", "garbage: '{not json}' is not JSON"),
        ("error", "request_errors", "server: KV cache is full"),
        ("cut", "request_errors", "cut: the stream ended after 3 tokens"),
        ("cut_in_frame", "request_errors", "cut: the stream ended after 3 tokens"),
        ("stall", "request_timeout", "timeout: not finished after 0.4 s"),
    ],
)
async def test_a_failing_server_is_one_clear_fault(fault: str, kind: str, message: str) -> None:
    pace = Pace(ttft_s=0.001, gap_s=0.001, fault=fault)
    with pytest.raises(TrialFault) as caught:
        await load(pace, num_prompts=4, request_timeout_s=0.4 if fault == "stall" else 60.0)
    assert (caught.value.kind, caught.value.stage) == (kind, "load")
    assert f"all 4 requests failed, most with {message}" in caught.value.message
    assert "\n" not in caught.value.message


async def test_a_server_that_is_not_there_is_unreachable() -> None:
    with nobody_listens() as url, pytest.raises(TrialFault, match="connect: ") as caught:
        await warm_up(LoadTarget(url, "m", vocab_size=256), workload())
    assert (caught.value.kind, caught.value.stage) == ("unreachable", "warmup")


async def test_few_failures_are_counted_and_keep_their_frames() -> None:
    run, _ = await load(Pace(ttft_s=0.001, gap_s=0.001, fault="reset", faulty=frozenset({7})), num_prompts=20)
    [failed] = [sample for sample in run.samples if sample.error is not None]
    assert failed.error is not None
    assert failed.error.startswith("cut: ")
    assert failed.output_tokens <= 3
    measured = summarise(run, workload())
    assert (measured.metrics["completed"].value, measured.metrics["failed"].value) == (19, 1)
    assert measured.metrics["ttft_ms.mean"].n == 19
    assert any(line.startswith("1 of 20 requests failed, most with cut: ") for line in measured.warnings)


async def test_more_than_a_tenth_of_failures_fails_the_run() -> None:
    with pytest.raises(TrialFault, match="3 of 20 requests failed"):
        await load(Pace(ttft_s=0.001, gap_s=0.001, fault="http503", faulty=frozenset({2, 5, 9})), num_prompts=20)


async def test_warm_up_sends_other_prompts_of_the_same_lengths() -> None:
    async with PacedServer(Pace(ttft_s=0.001, gap_s=0.0)) as server:
        await warm_up(target(server), workload(warmup_requests=3))
        assert len(server.served) == 3
        await run_load_test(target(server), workload(warmup_requests=3), on_progress=lambda _done, _all: None)
    bodies = [served.body for served in server.served]
    assert len({body["input_ids"][0] for body in bodies}) == 15
    assert {(len(body["input_ids"]), body["sampling_params"]["max_new_tokens"]) for body in bodies} == {(16, 8)}


async def test_one_failed_warm_up_request_is_a_fault() -> None:
    async with PacedServer(Pace(ttft_s=0.0, gap_s=0.0, fault="error", faulty=frozenset({1}))) as server:
        with pytest.raises(TrialFault, match="warmup: request_errors: 1 of 3 requests failed"):
            await warm_up(target(server), workload(warmup_requests=3))


async def test_no_warm_up_sends_nothing() -> None:
    async with PacedServer(Pace()) as server:
        await warm_up(target(server), workload(warmup_requests=0))
    assert server.served == []


@pytest.mark.timing
async def test_progress_is_told_while_it_runs_and_at_the_end() -> None:
    told: list[tuple[int, int]] = []
    async with PacedServer(Pace(ttft_s=0.15, gap_s=0.0)) as server:
        await run_load_test(target(server), workload(), on_progress=lambda done, count: told.append((done, count)))
    assert told == sorted(told)
    assert len(told) >= 3
    assert told[-1] == (12, 12)


async def test_cancelling_leaves_no_connection_open() -> None:
    async with PacedServer(Pace(ttft_s=0.01, gap_s=5.0)) as server:
        running = asyncio.create_task(run_load_test(target(server), workload(), on_progress=lambda _done, _all: None))
        while server.in_flight < 4:
            await asyncio.sleep(0.01)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        while connections_to(server.base_url):
            await asyncio.sleep(0.01)


@pytest.mark.timing
async def test_sessions_send_a_turn_after_the_answer_and_a_thought() -> None:
    run, server = await load(
        Pace(ttft_s=0.02, gap_s=0.0), num_prompts=9, max_concurrency=2, sessions={"turns": 3, "think_s": 0.1}
    )
    for session in range(3):
        turns = run.samples[3 * session : 3 * session + 3]
        for before, after in itertools.pairwise(turns):
            assert after.sent_s - before.done_s == pytest.approx(0.1, abs=0.03)
            assert after.input_len > before.input_len
    assert server.most_in_flight <= 2
    assert [sample.error for sample in run.samples] == [None] * 9
