"""Counts that cannot be true fail the request, with the rule that they break."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dsabench.load.read.generate import read_generate
from dsabench.load.read.json_stream import StreamReply
from dsabench.load.read.openai import read_chat, read_completions
from dsabench.load.requests import LoadTarget, RequestOptions, asked_tokens
from dsabench.model.sample import Prompt
from unit.load.read.streams import chat, completion, reads

ASKED = 8
LENGTH = {"type": "length", "length": ASKED}


def native(*counts: Any, finish: Any = LENGTH, **meta: Any) -> StreamReply:
    """A /generate answer whose frames have these counts."""
    infos = [{"prompt_tokens": 7, "completion_tokens": count, "finish_reason": None, **meta} for count in counts]
    infos[-1]["finish_reason"] = finish
    frames = [(float(place), {"text": "a", "meta_info": info}) for place, info in enumerate(infos)]
    return read_generate(reads(*frames, (9.0, "[DONE]")), 0.0, asked=ASKED)


def openai(*counts: int | None, finish: str | None = "length", prompt: Any = 7, read: Any = read_completions) -> Any:
    usages = [None if count is None else {"prompt_tokens": prompt, "completion_tokens": count} for count in counts]
    make = completion if read is read_completions else lambda text, end, _: chat({"content": text}, end)
    events = [make("a", finish if place == len(usages) - 1 else None, usage) for place, usage in enumerate(usages)]
    return read(
        reads(*((float(place), event) for place, event in enumerate(events)), (9.0, "[DONE]")), 0.0, asked=ASKED
    )


BROKEN = [
    (native(8000), "completion_tokens is 8000 where 8 tokens were asked for"),
    (native(1, 2, 9), "completion_tokens is 9 where 8 tokens were asked for"),
    (native(1, 5, 3, 8), "completion_tokens fell from 5 to 3"),
    (native(1, -8), "completion_tokens is -8, which is no number of tokens"),
    (native(10**18), "completion_tokens is 1000000000000000000, which is no number of tokens"),
    (native(1, 2), 'finish_reason is "length" after 2 of 8 tokens'),
    (native(1, 4, finish=None), "the answer ends after 4 of 8 tokens and does not say why"),
    (native(8, prompt_tokens=-1), "prompt_tokens is -1, which is no number of tokens"),
    (native(8, cached_tokens=-3), "cached_tokens is -3, which is no number of tokens"),
    (openai(1, 2, 9), "completion_tokens is 9 where 8 tokens were asked for"),
    (openai(1, 5, 3), "completion_tokens fell from 5 to 3"),
    (openai(2), 'finish_reason is "length" after 2 of 8 tokens'),
    (openai(1, 4, finish=None), "the answer ends after 4 of 8 tokens and does not say why"),
    (openai(8, prompt=2**40), "prompt_tokens is 1099511627776, which is no number of tokens"),
]


@pytest.mark.parametrize(("reply", "rule"), BROKEN, ids=lambda value: value if isinstance(value, str) else "")
def test_a_count_that_cannot_be_true_names_its_rule(reply: StreamReply, rule: str) -> None:
    assert reply.error == f"garbage: {rule}"


@pytest.mark.parametrize(
    "reply",
    [
        native(1, 1, 4, 8),
        native(8),
        native(1, 3, finish={"type": "stop", "matched": 1}),  # an early end that says why
        native(8, finish=None),  # all that was asked for
        openai(1, 4, 8),
        openai(3, finish="stop"),
        openai(None, None),  # no counts: two events may be eight tokens
        openai(None, finish=None),
        openai(None, None, finish="stop", read=read_chat),
    ],
)
def test_what_can_be_true_passes(reply: StreamReply) -> None:
    assert reply.error is None


@pytest.mark.parametrize("count", [1.5, "8", True, None, float("1e18"), [8]])
def test_what_is_no_integer_is_no_count(count: Any) -> None:
    assert (native(count).error or "").startswith("garbage: a frame without meta_info.completion_tokens")
    said = openai(count).error
    assert said is None if count is None else said.startswith("garbage: completion_tokens is ")


@pytest.mark.parametrize(
    ("told", "known"), [(2.5, 2.5), (0, None), (-2, None), (1e308, None), ("3", None), (True, None)]
)
def test_an_accept_length_that_cannot_be_one_is_absent(told: object, known: float | None) -> None:
    reply = native(8, spec_accept_length=told)
    assert (reply.error, reply.accept_length) == (None, known)


def test_keys_that_were_added_to_the_body_may_ask_for_another_number() -> None:
    prompt = Prompt(1, 8, text="a")
    assert asked_tokens(RequestOptions("generate", "m"), [prompt]) == [8]
    for key in ("sampling_params", "max_tokens", "max_completion_tokens", "n"):
        assert asked_tokens(RequestOptions("generate", "m", extra={key: 3}), [prompt]) == [None]
        mixed = [prompt, Prompt(1, 8, text="a", extra={key: 3})]
        assert asked_tokens(LoadTarget("http://h", "m").options, mixed) == [8, None]


def test_numbers_that_json_does_not_have_are_garbage() -> None:
    for text in ("NaN", "Infinity", "-Infinity"):
        frame = json.dumps({"text": "a", "meta_info": {"completion_tokens": 0}}).replace("0", text)
        assert (read_generate(reads((1.0, frame)), 0.0, asked=8).error or "").startswith("garbage: ")
