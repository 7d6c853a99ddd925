from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from dsabench.load.judge.stalls import ServerStall, server_stalls, stall_warnings
from dsabench.load.judge.summary import summarise
from dsabench.model.sample import NO_FRAMES, Frames, RequestSample
from dsabench.results.samples import read_samples
from factories import make_workload
from unit.load.made import closed_loop, run_of, sample

RESULTS = Path(__file__).parents[3] / "results" / "h200" / "x4" / "samples"


def paused(samples: list[RequestSample], at_s: float, for_s: float) -> list[RequestSample]:
    """The same run on a server that does nothing from `at_s` on for `for_s`."""

    def later(moment_s: float) -> float:
        return moment_s + for_s if moment_s > at_s else moment_s

    return [
        replace(
            one,
            scheduled_s=later(one.scheduled_s),
            sent_s=later(one.sent_s),
            done_s=later(one.done_s),
            frames=Frames.of((later(at), tokens) for at, tokens in one.frames),
        )
        for one in samples
    ]


def test_a_server_that_pauses_is_seen_with_when_and_how_long() -> None:
    [found] = server_stalls(paused(closed_loop(4, 10), 3.02, 2.0))
    assert found.in_flight == 4
    assert found.start_s == pytest.approx(3.0, abs=0.05)
    assert found.duration_s == pytest.approx(2.0, abs=0.2)


def test_a_run_without_one_says_nothing() -> None:
    assert server_stalls(closed_loop(4, 10)) == ()
    assert server_stalls(paused(closed_loop(4, 10), 3.02, 0.9)) == ()
    assert server_stalls([]) == ()
    assert list(stall_warnings(closed_loop(4, 10), 0.0)) == []


def test_one_line_for_several_names_the_longest() -> None:
    [line] = stall_warnings(paused(paused(closed_loop(4, 10), 3.02, 2.0), 7.03, 4.0), 1.0)
    assert line.startswith("the server stood still: 2 times, 6.")
    assert "no token from any stream for 4.1 s, from 7.0 to 11.1 s of the run, with 4 in flight" in line


def test_a_load_generator_that_was_late_itself_is_named() -> None:
    [line] = stall_warnings(paused(closed_loop(4, 10), 3.02, 2.0), 1900.0)
    assert line.startswith("the load generator (or the whole machine) stood still")


def test_waiting_for_long_prompts_alone_is_no_standstill() -> None:
    """One at a time: prompts of 1,000 tokens take 0.1 s to their first token, those of 60,000 take 6 s."""
    each, at_s = [], 0.0
    for i in range(20):
        tokens = 60_000 if i % 7 == 3 else 1_000
        first_s = tokens * 1e-4
        frames = Frames.of((at_s + first_s + 0.01 * k, 1) for k in range(8))
        each.append(sample(i, at_s, first_s + 0.07, tokens=8, input_len=tokens, frames=frames))
        at_s += first_s + 0.1
    assert server_stalls(each) == ()
    assert len(server_stalls(paused(each, each[1].sent_s + 0.05, 3.0))) == 1


def test_a_prompt_from_the_cache_is_not_long() -> None:
    cached = [sample(i, i * 0.2, 0.1, tokens=1, input_len=50_000, cached_tokens=49_000) for i in range(20)]
    assert len(server_stalls(paused(cached, 1.05, 3.0))) == 1


def test_idle_between_arrivals_is_no_standstill() -> None:
    assert server_stalls([sample(i, i * 5.0, 0.5) for i in range(10)]) == ()


def test_streams_that_bring_many_tokens_at_a_time_are_quiet_between() -> None:
    def slow(i: int) -> RequestSample:
        return sample(i, 0.0, 20.0, frames=Frames.of((2.0 * (k + 1), 50) for k in range(10)), tokens=500)

    assert server_stalls([slow(i) for i in range(4)]) == ()


def test_answers_in_one_piece_say_nothing() -> None:
    whole = [sample(i, i * 3.0, 3.0, frames=Frames.of([(i * 3.0 + 3.0, 10)])) for i in range(5)]
    assert server_stalls([*whole, sample(5, 15.0, 40.0, frames=Frames.of([(55.0, 200)]))]) == ()


def test_a_pause_before_the_first_token_of_all_counts() -> None:
    late = paused(closed_loop(4, 10), -1.0, 3.0)
    [found] = server_stalls([replace(one, sent_s=0.0) if one.index < 4 else one for one in late])
    assert (found.start_s, found.in_flight) == (0.0, 4)


def test_it_is_among_the_warnings_of_a_measurement() -> None:
    samples = paused(closed_loop(4, 10), 3.02, 2.0)
    said = summarise(run_of(samples, 12.75), make_workload(max_concurrency=4)).warnings
    assert said[0].startswith("the server stood still: no token from any stream for 2.0 s, from 3.0 to 5.0 s")


def test_requests_that_failed_do_not_break_it() -> None:
    lost = [sample(90 + i, 1.0, 0.1, error="reset: gone", frames=NO_FRAMES) for i in range(3)]
    assert len(server_stalls([*paused(closed_loop(4, 10), 3.02, 2.0), *lost])) == 1


@pytest.mark.skipif(not RESULTS.is_dir(), reason="no results in this installation")
def test_measured_runs() -> None:
    """Four H200: one run stood still between two waves of prompts, the seven others did not."""
    found = {file.name[:8]: server_stalls(read_samples(file)) for file in sorted(RESULTS.glob("*-c353941d-0.parquet"))}
    stood = found.pop("f9b0aa69")
    assert stood == (ServerStall(pytest.approx(0.898, abs=1e-3), pytest.approx(5.976, abs=1e-3), 16),)
    assert set(found.values()) == {()}
