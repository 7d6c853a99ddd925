from __future__ import annotations

from dsabench.load.summarise import summarise
from factories import make_workload
from unit.load.made import run_of, sample


def warnings_of(*samples, **workload) -> tuple[str, ...]:
    return summarise(run_of(list(samples), 2.0), make_workload(**workload)).warnings


def test_a_cached_prefix_is_said_with_what_to_do() -> None:
    lines = warnings_of(sample(0, cached_tokens=8), sample(1, cached_tokens=0))
    assert "the prefix cache answered 40% of the prompt tokens: prefill is faster than the workload asks" in lines
    assert any(line.startswith("1 of 2 requests found a cached prefix") for line in lines)
    assert not [line for line in warnings_of(sample(0, cached_tokens=0)) if "prefix" in line]


def test_how_tokens_were_counted_is_said_unless_the_server_counted() -> None:
    assert not [line for line in warnings_of(sample()) if "token" in line and "answers" in line]
    lines = warnings_of(sample(0, count_source="deltas"), sample(1, count_source="total"), sample(2))
    assert any(line.startswith("the server sent no token counts for 1 of 3 answers") for line in lines)
    assert any(line.startswith("the server told the tokens of 1 of 3 answers at their end only") for line in lines)
