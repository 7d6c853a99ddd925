from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsabench.load.judge.metrics import gaps_s
from dsabench.load.read.openai import read_chat, read_completions, spread_tokens
from dsabench.model.sample import Frame
from unit.load.read.streams import chat, completion, reads

USAGE = {"prompt_tokens": 7, "completion_tokens": 6, "prompt_tokens_details": {"cached_tokens": 3}}


def test_tokens_come_from_usage_of_every_event_where_the_server_gives_it() -> None:
    stream = reads(
        (1.0, completion("a", usage={"prompt_tokens": 7, "completion_tokens": 1})),
        (2.0, completion("bcd", usage={"prompt_tokens": 7, "completion_tokens": 4})),
        (3.0, completion("", "length", {"prompt_tokens": 7, "completion_tokens": 5})),  # a token without text
        (3.0, {"choices": [], "usage": USAGE}),
        (3.0, "[DONE]"),
    )
    reply = read_completions(stream, 0.5)
    assert tuple(reply.frames) == (Frame(0.5, 1), Frame(1.5, 3), Frame(2.5, 1), Frame(2.5, 1))
    assert (reply.count_source, reply.error, reply.finish_reason) == ("frames", None, "length")
    assert (reply.input_tokens, reply.cached_tokens) == (7, 3)
    # a frame of three tokens is three gaps of a third
    assert gaps_s(reply.frames).tolist() == pytest.approx([1 / 3, 1 / 3, 1 / 3, 1.0, 0.0])


def test_a_total_at_the_end_is_spread_over_the_events() -> None:
    texts = ["a", "bb", "", "c", "dd"]
    events = [(float(i), completion(text)) for i, text in enumerate(texts)]
    reply = read_completions(reads(*events, (5.0, {"choices": [], "usage": USAGE}), (5.0, "[DONE]")), 0.0)
    assert reply.count_source == "total"
    assert [frame.at_s for frame in reply.frames] == [0.0, 1.0, 3.0, 4.0]
    assert sum(frame.tokens for frame in reply.frames) == 6
    last = read_completions(reads(*events, (4.5, completion("", "stop", USAGE)), (5.0, "[DONE]")), 0.0)
    assert last.frames == reply.frames


def test_without_usage_each_event_with_text_is_one_token_and_says_so() -> None:
    stream = reads((1.0, completion("a")), (2.0, completion("")), (3.0, completion("b", "stop")), (3.0, "[DONE]"))
    reply = read_completions(stream, 0.0)
    assert tuple(reply.frames) == (Frame(1.0, 1), Frame(3.0, 1))
    assert (reply.count_source, reply.input_tokens, reply.cached_tokens, reply.error) == ("deltas", None, None, None)


def test_content_reasoning_and_tool_calls_all_count() -> None:
    call = {"index": 0, "id": "c", "function": {"name": "look", "arguments": ""}}
    deltas = [
        {"role": "assistant", "content": ""},
        {"reasoning_content": "hm"},
        {"reasoning": "hm", "reasoning_content": "hm"},
        {"reasoning": "so"},
        {"content": "Hi"},
        {"tool_calls": [call]},
        {"tool_calls": [{"index": 0, "function": {"arguments": '{"a"'}}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": ""}}]},
    ]
    stream = reads(*((float(i), chat(delta)) for i, delta in enumerate(deltas)), (9.0, chat(finish="tool_calls")))
    reply = read_chat(stream, 0.0, keep_text=True)
    assert [frame.at_s for frame in reply.frames] == [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
    assert (reply.finish_reason, reply.error) == ("tool_calls", None)
    assert reply.spoken is not None
    assert reply.spoken.text == 'hmhmsoHilook{"a"'


def test_a_step_of_two_events_is_counted_once_with_usage() -> None:
    stream = reads(
        (0.0, chat({"role": "assistant", "content": ""})),
        (1.0, chat({"reasoning_content": "end"}, tokens=3)),
        (1.0, chat({"content": "Start"}, tokens=3)),
        (2.0, chat({"content": "x"}, tokens=4)),
        (2.0, chat(finish="stop")),
        (2.0, "[DONE]"),
    )
    reply = read_chat(stream, 0.0, keep_text=True)
    assert tuple(reply.frames) == (Frame(1.0, 3), Frame(2.0, 1))
    assert reply.spoken is not None
    assert (reply.spoken.reported_tokens, reply.spoken.reported_beside_text) == (4, 4)
    assert len(reply.spoken.pieces) == 3


def test_what_sglang_adds_is_read() -> None:
    extension = {
        "cached_tokens_details": {"device": 5, "host": 2},
        "spec_tokens_details": {"spec_accept_length": 2.75},
    }
    stream = reads((1.0, chat({"content": "x"})), (1.0, {"choices": [], "sglext": extension}), (1.0, "[DONE]"))
    reply = read_chat(stream, 0.0, keep_text=True)
    assert (reply.cached_tokens, reply.accept_length) == (7, 2.75)
    assert reply.spoken is not None
    assert reply.spoken.cached_tokens_details == {"device": 5, "host": 2}


@pytest.mark.parametrize(
    ("stream", "error", "tokens"),
    [
        ([completion("a"), {"error": {"message": "KV\nfull", "code": 500}}], "server: KV full", 1),
        ([completion("a"), {"object": "error", "message": "gone"}], "server: gone", 1),
        ([completion("a"), completion("", "abort")], "abort: the server gave the request up", 1),
        ([completion("a"), "{"], "garbage: '{' is not JSON", 1),
        ([completion("a"), {"text": "a"}], "garbage: a frame without choices", 1),
        ([[1]], "garbage: a frame without choices", 0),
        ([{"choices": "none"}], "garbage: a frame without choices", 0),
        ([completion("a"), completion("b")], "cut: the stream ended after 2 tokens", 2),
        ([completion("", "length"), "[DONE]"], "empty: the answer has no token", 0),
        ([{"choices": [], "usage": USAGE}, "[DONE]"], "empty: usage counts 6 tokens, but no event had any text", 0),
    ],
)
def test_a_reply_that_fails_says_why_and_keeps_its_frames(stream: list[Any], error: str, tokens: int) -> None:
    reply = read_completions(reads(*((float(i), item) for i, item in enumerate(stream))), 0.0)
    assert reply.error is not None
    assert reply.error.startswith(error)
    assert sum(frame.tokens for frame in reply.frames) == tokens


def test_what_one_usage_tells_another_does_not_take_back() -> None:
    stream = reads(
        (1.0, completion("a", usage={**USAGE, "completion_tokens": 1})),
        (2.0, completion("b", "stop", {"completion_tokens": 2})),
    )
    reply = read_completions(stream, 0.0)
    assert (reply.input_tokens, reply.cached_tokens) == (7, 3)


def test_a_servers_words_do_not_steer_the_terminal() -> None:
    reply = read_completions(reads((0.0, {"error": {"message": "bad \x1b[2J\u202e end"}})), 0.0)
    assert reply.error == r"server: bad \x1b[2J\u202e end"


def test_the_end_needs_no_done_where_a_finish_reason_came() -> None:
    assert read_completions(reads((1.0, completion("a", "stop"))), 0.0).error is None
    cut = [*reads((1.0, completion("a"))), (2.0, b'data: {"choices": [{"te')]
    assert read_completions(cut, 0.0).error == "cut: the stream ended after 1 tokens"


@given(st.lists(st.floats(0.0, 10.0), min_size=1, max_size=30).map(sorted), st.integers(1, 100))
def test_spreading_keeps_total_order_and_the_first_event(at_s: list[float], tokens: int) -> None:
    pairs = spread_tokens(at_s, tokens)
    assert sum(count for _, count in pairs) == tokens
    assert all(count >= 1 for _, count in pairs)
    assert [at for at, _ in pairs] == sorted(at for at, _ in pairs)
    assert pairs[0][0] == at_s[0]
    assert max(count for _, count in pairs) - min(count for _, count in pairs) <= 1


def test_fewer_tokens_than_events_drop_those_close_behind_another() -> None:
    assert spread_tokens([0.0, 1.0, 1.0, 2.0], 3) == [(0.0, 1), (1.0, 1), (2.0, 1)]
