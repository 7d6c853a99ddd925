from __future__ import annotations

import pytest

from dsabench.load.judge.summary import request_warnings, summarise
from dsabench.model.sample import NO_FRAMES
from factories import make_workload
from unit.load.made import run_of, sample


def test_a_cached_prefix_is_said_with_what_to_do() -> None:
    lines = list(request_warnings([sample(0, cached_tokens=8), sample(1, cached_tokens=0)], "random-ids"))
    assert "the prefix cache answered 40% of the prompt tokens: prefill is faster than the workload asks" in lines
    assert any(line.startswith("1 of 2 requests found a cached prefix") for line in lines)


def test_a_turn_of_a_session_is_meant_to_find_the_turns_before_it() -> None:
    assert list(request_warnings([sample(0, cached_tokens=8)], "random-ids", in_sessions=True)) == []


@pytest.mark.parametrize(("cached", "dataset"), [(0, "random-ids"), (8, "generated-shared-prefix"), (8, "mooncake")])
def test_a_prefix_that_is_not_cached_or_meant_to_be_is_nothing_to_say(cached: int, dataset: str) -> None:
    assert list(request_warnings([sample(0, cached_tokens=cached)], dataset)) == []


def test_how_tokens_were_counted_is_said_unless_the_server_counted() -> None:
    assert list(request_warnings([sample()], "random-ids")) == []
    lines = list(
        request_warnings([sample(0, count_source="deltas"), sample(1, count_source="total"), sample(2)], "random-ids")
    )
    assert lines[0].startswith("the server sent no token counts for 1 of 3 answers")
    assert lines[1].startswith("the server told the tokens of 1 of 3 answers at their end only")


def test_failures_name_the_commonest_error() -> None:
    lost = [sample(i, error="reset: gone", frames=NO_FRAMES) for i in range(2)]
    assert list(request_warnings([*lost, sample(2)], "random-ids")) == ["2 of 3 requests failed, most with reset: gone"]


def test_they_are_among_the_warnings_of_a_measurement() -> None:
    lines = summarise(run_of([sample(0, cached_tokens=8)], 2.0), make_workload()).warnings
    assert set(request_warnings([sample(0, cached_tokens=8)], "random-ids")) <= set(lines)
