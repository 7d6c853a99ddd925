from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dsabench.errors import InputError
from dsabench.load.draw.prompts import RandomIdDataset, TokenLengths, draw_lengths, draw_prompts
from dsabench.load.requests import LoadTarget
from dsabench.load.schedule import sessions_of
from dsabench.model.workload import Workload


def workload(**changes: Any) -> Workload:
    fields = {"name": "w", "dataset": "random-ids", "input_len": 32, "output_len": 8, "num_prompts": 8}
    return Workload.model_validate(fields | changes)


def target(**changes: Any) -> LoadTarget:
    return LoadTarget(**{"base_url": "http://h:1", "model": "m", "vocab_size": 1000, "tokenizer": "bytes"} | changes)


@pytest.mark.parametrize(
    ("vocab_size", "count", "head"), [(1000, 900, 1), (256, 1000, 2), (129_280, 500, 1), (2, 9, 4)]
)
def test_no_two_prompts_share_a_head(vocab_size: int, count: int, head: int) -> None:
    prompts = RandomIdDataset(vocab_size).draw([TokenLengths(16, 1)] * count, np.random.default_rng(1))
    assert len({prompt.input_ids[:head] for prompt in prompts if prompt.input_ids}) == count


def test_prompts_too_short_to_tell_apart_are_drawn_all_the_same() -> None:
    prompts = RandomIdDataset(4).draw([TokenLengths(1, 1)] * 9, np.random.default_rng(1))
    assert [prompt.input_len for prompt in prompts] == [1] * 9


def test_ids_use_the_whole_vocabulary() -> None:
    prompts = RandomIdDataset(50).draw([TokenLengths(200, 1)] * 20, np.random.default_rng(1))
    assert {i for prompt in prompts for i in prompt.input_ids or ()} == set(range(50))


def test_ratio_zero_is_uniform_from_one_token_on() -> None:
    lengths = draw_lengths(workload(range_ratio=0.0), 4000, np.random.default_rng(1))
    inputs = [length.input_len for length in lengths]
    assert (min(inputs), max(inputs)) == (1, 32)
    assert np.mean(inputs) == pytest.approx(16.5, rel=0.05)


def test_random_ids_needs_the_vocabulary() -> None:
    with pytest.raises(InputError, match="workload w: random-ids needs the vocabulary size"):
        draw_prompts(target(vocab_size=None), workload())


def test_no_two_prompts_are_equal_nor_any_warm_up() -> None:
    drawn = draw_prompts(
        target(vocab_size=256), workload(input_len=96, output_len=16, num_prompts=100, warmup_requests=5)
    )
    everything = (*drawn.measured, *drawn.warm_up)
    assert (len(drawn.measured), len({one.input_ids for one in everything})) == (100, 105)
    assert all(len(one.input_ids or ()) == one.input_len == 96 and one.output_len == 16 for one in everything)


def test_the_seed_decides() -> None:
    once, again, other = (draw_prompts(target(), workload(seed=seed)) for seed in (1, 1, 2))
    assert once[:2] == again[:2]
    np.testing.assert_array_equal(once.due_s, again.due_s)
    assert once.measured != other.measured


def test_a_turn_continues_the_one_before_and_sessions_share_nothing() -> None:
    drawn = draw_prompts(target(), workload(num_prompts=12, sessions={"turns": 3}, warmup_requests=1))
    assert sessions_of(drawn.measured) == ((0, 1, 2), (3, 4, 5), (6, 7, 8), (9, 10, 11))
    assert [prompt.input_len for prompt in drawn.measured[:3]] == [32, 32 + 8 + 32, 2 * (32 + 8) + 32]
    for first, second in ((0, 1), (1, 2), (4, 5)):
        before, after = drawn.measured[first].input_ids or (), drawn.measured[second].input_ids or ()
        assert after[: len(before)] == before
    heads = {(prompt.input_ids or ())[0] for prompt in (*drawn.measured[::3], *drawn.warm_up)}
    assert len(heads) == 5
    assert drawn.due_s.tolist() == [0.0] * 12


def test_questions_may_follow_a_long_opening() -> None:
    drawn = draw_prompts(target(), workload(num_prompts=6, sessions={"turns": 3, "opening_len": 500}))
    lengths = [prompt.input_len for prompt in drawn.measured]
    assert lengths == [500, 500 + 8 + 32, 500 + 2 * (8 + 32)] * 2


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_prompts": 7, "sessions": {"turns": 3}}, "7 prompts are no sessions of 3 turns"),
        ({"sessions": {"turns": 2}, "draw": "exact"}, "sessions are drawn from dataset random-ids"),
    ],
)
def test_sessions_that_cannot_be_drawn_are_one_line(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        draw_prompts(target(), workload(**changes))
