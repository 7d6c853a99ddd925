from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsabench.http import Read
from dsabench.load.read.generate import read_generate
from dsabench.model.sample import Frame
from paced_server import Pace, cut, frames

BODY = {"input_ids": [1] * 7, "sampling_params": {"max_new_tokens": 8}}


def reads(*items: tuple[float, dict[str, Any] | str]) -> list[Read]:
    return [(at, f"data: {item if isinstance(item, str) else json.dumps(item)}\n\n".encode()) for at, item in items]


def frame(tokens: int, finish: Any = None, **meta: Any) -> dict[str, Any]:
    return {"text": "", "meta_info": {"completion_tokens": tokens, "finish_reason": finish, **meta}}


def test_tokens_are_the_growth_of_the_count_even_without_text() -> None:
    reply = read_generate(reads((10.5, frame(1)), (11.0, frame(4)), (11.5, frame(5, {"type": "length"}))), 10.0)
    assert tuple(reply.frames) == (Frame(0.5, 1), Frame(1.0, 3), Frame(1.5, 1))
    assert reply.error is None


def test_a_frame_without_new_tokens_gives_none() -> None:
    reply = read_generate(reads((0.5, frame(0)), (1.0, frame(2)), (2.0, frame(2)), (3.0, "[DONE]")), 0.0)
    assert tuple(reply.frames) == (Frame(1.0, 2),)


def test_what_the_server_tells_of_the_request_is_kept() -> None:
    meta = {"prompt_tokens": 7, "cached_tokens": 64, "spec_accept_length": 2.5}
    reply = read_generate(reads((0.5, frame(1)), (1.0, frame(2, {"type": "length"}, **meta)), (1.0, "[DONE]")), 0.0)
    assert (reply.input_tokens, reply.cached_tokens, reply.accept_length) == (7, 64, 2.5)
    assert read_generate(reads((0.5, frame(1, {"type": "stop"}))), 0.0).accept_length is None


@pytest.mark.parametrize(
    ("stream", "error", "tokens"),
    [
        ([frame(1), {"error": {"message": "KV cache\nfull"}}], "server: KV cache full", 1),
        ([frame(1), {"error": "down"}], "server: down", 1),
        ([frame(1), frame(2, {"type": "abort", "message": "too long"})], "abort: too long", 2),
        ([frame(1), "{"], "garbage: '{' is not JSON", 1),
        ([frame(1), {"text": "a"}], "garbage: a frame without meta_info.completion_tokens", 1),
        ([[1]], "garbage: a frame without", 0),
        ([frame(1), frame(2)], "cut: the stream ended after 2 tokens", 2),
        ([], "cut: the stream ended after 0 tokens", 0),
        (["[DONE]"], "empty: the answer has no token", 0),
    ],
)
def test_a_reply_that_fails_says_why_and_keeps_its_frames(stream: list[Any], error: str, tokens: int) -> None:
    reply = read_generate(reads(*((float(i), item) for i, item in enumerate(stream))), 0.0)
    assert reply.error is not None
    assert reply.error.startswith(error)
    assert sum(frame.tokens for frame in reply.frames) == tokens


def test_a_stream_that_ends_inside_a_frame_is_cut() -> None:
    reply = read_generate([*reads((1.0, frame(3))), (2.0, b'data: {"text": "sp')], 0.0)
    assert (reply.error, tuple(reply.frames)) == ("cut: the stream ended after 3 tokens", (Frame(1.0, 3),))


@given(st.integers(1, 60), st.integers(1, 5), st.booleans(), st.booleans())
def test_cuts_comments_and_repeats_change_nothing(pieces: int, tokens: int, comments: bool, repeats: bool) -> None:
    pace = Pace(tokens_per_frame=tokens, comments=comments, repeats=repeats, newline=b"\r\n")
    raw = b"".join(frames(pace, BODY)) + b"data: [DONE]\r\n\r\n"
    reply = read_generate([(0.0, piece) for piece in cut(raw, pieces)], 0.0)
    assert reply.error is None
    assert sum(frame.tokens for frame in reply.frames) == 8
    assert [frame.tokens for frame in tuple(reply.frames)[:-1]] == [tokens] * (len(reply.frames) - 1)
    assert reply.input_tokens == 7
