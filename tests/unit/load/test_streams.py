"""The recogniser gives what the exact reader gives, whatever the stream and wherever it is cut."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsabench.load.read import fast_generate
from dsabench.load.read.fast_generate import read_streams
from dsabench.load.read.generate import read_generate
from dsabench.load.read.recognise import DONE, END, FRAME, ODD
from dsabench.load.read.recognise import HEAD as HEADERS
from unit.load.recorded import HEAD, chunk, recording_of

TEXTS = (
    "sparse",
    " é🙂",
    '"completion_tokens":7,',
    "\\",
    "}}\n\n\r\n",
    "{",
    'data: {"text":',
    "\u2028",
    "a\tb",
    "0\r\n\r\n",
)


def frame(count: int, text: str, *, compact: bool = True, ids: int | None = None, **meta: Any) -> bytes:
    info = {"id": "x" * 32, "finish_reason": None, "prompt_tokens": 7, "completion_tokens": count, "cached_tokens": 0}
    separators = (",", ":") if compact else None
    new = {} if ids is None else {"output_ids": list(range(ids))}
    data = json.dumps({"text": text, **new, "meta_info": {**info, **meta}}, ensure_ascii=False, separators=separators)
    return b"data: " + data.encode() + b"\n\n"


def answer(counts: list[int], **meta: Any) -> list[bytes]:
    """Chunks of a whole answer."""
    last = {"finish_reason": {"type": "length", "length": counts[-1]}} if counts else {}
    frames = [frame(count, "w " * count, **meta, **(last if count == counts[-1] else {})) for count in counts]
    return [*map(chunk, frames), chunk(b"data: [DONE]\n\n"), b"0\r\n\r\n"]


def check(requests: list[list[bytes]], reels: int = 1) -> None:
    recording = recording_of(requests, reels)
    try:
        for asked in (None, 3, 39, 1010):
            for keep_text in (False, True):
                exact = [
                    read_generate(recording.reads(index), 0.0, asked=asked, keep_text=keep_text)
                    for index in range(len(requests))
                ]
                assert list(read_streams(recording, [asked] * len(requests), keep_text=keep_text)) == exact
    finally:
        recording.close()


def test_a_usual_answer_is_recognised_in_every_read() -> None:
    """Otherwise the tests below would compare the exact reader with itself."""
    recording = recording_of([[HEAD, *answer(list(range(1, 130)))]])
    found = recording.sorted_reads(recognise=True).found
    assert found is not None
    assert found.counts.tolist() == [ODD, *range(1, 130), ODD, ODD]
    assert found.kinds.tolist() == [HEADERS, *[FRAME] * 129, DONE, END]
    [reply] = read_streams(recording, [129])
    assert reply.error is None
    assert reply.frames.tokens.tolist() == [1] * 129
    assert reply.frames.at_s.tolist() == pytest.approx([0.001 * place for place in range(2, 131)])
    assert reply.finish_reason == "length"
    recording.close()


@pytest.mark.parametrize(
    "requests",
    [
        [[HEAD, *answer([1, 4, 5, 9, 1009, 1010])]],
        [[HEAD + answer([1, 2, 3])[0], *answer([1, 2, 3])[1:]], [HEAD, *answer(list(range(1, 40)), dp_rank=3)]],
        [[HEAD, *answer(list(range(1, 40)), cached_tokens_details={"device": 3, "host": 0})]],
        [[HEAD, *answer([1, 2, 3])[:3]]],
        [[HEAD, *answer([1, 2, 2, 3, 3])]],
        [[HEAD, *answer([1, 2, 3, 2, 4])]],
        [[HEAD, *answer([0, 1, 2, 3])]],
        [[HEAD, *(chunk(frame(n, text)) for n, text in enumerate(["", "", "a", "ab", "ab"], 1)), *answer([6])]],
        [[HEAD, *(chunk(frame(n, "", finish_reason=None)) for n in range(1, 9)), *answer([9])]],
        [[HEAD, *(chunk(frame(n, "w ")) for n in range(1, 9)), *answer([9])]],
        [[HEAD, *(chunk(frame(n, "w ", ids=1)) for n in range(1, 9)), chunk(b"data: [DONE]\n\n"), b"0\r\n\r\n"]],
        [[HEAD, *(chunk(frame(n, "w " * n, ids=n)) for n in range(1, 9)), chunk(b"data: [DONE]\n\n"), b"0\r\n\r\n"]],
        [[HEAD, *answer([1, 2, 3]), *answer([4, 5, 6])]],
        [[HEAD, *(chunk(frame(n, "a")) for n in range(1, 5)), chunk(b'data: {"error": {"message": "full"}}\n\n')]],
        [[HEAD, *(chunk(frame(n, "a")) for n in range(1, 5)), chunk(b"data: {not json}\n\n")]],
        [[HEAD, b"400\r\n", *answer([1, 2, 3, 4])]],
        [[b"HTTP/1.1 200 OK\r\n\r\n", *(frame(n, "a") for n in range(1, 9))]],
        [[HEAD, *answer([1, 2, 3, 4], usage={"completion_tokens": 77})]],
        [[HEAD, *(chunk(frame(n, text, compact=False)) for n, text in enumerate(["a", "ab", ""], 1))]],
        [[], [HEAD]],
    ],
)
def test_odd_answers(requests: list[list[bytes]]) -> None:
    check(requests)


def test_answers_of_several_workers() -> None:
    check([[HEAD, *answer(list(range(1, 10 + own)))] for own in range(7)], reels=3)


def test_requests_are_looked_at_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fast_generate, "_BLOCK_READS", 50)
    check([[HEAD, *answer(list(range(1, 2 + own * 7 % 60)))] for own in range(40)] + [[], [HEAD]])


def _cut(data: bytes, places: list[int]) -> list[bytes]:
    edges = sorted({0, len(data), *(place % (len(data) + 1) for place in places)})
    return [data[a:b] for a, b in pairwise(edges)]


@st.composite
def streams(draw: st.DrawFn) -> list[bytes]:
    """Reads of one answer: usual frames for the most part, with everything that goes wrong in between."""
    count, chunks = 0, [HEAD]
    compact = draw(st.booleans())
    for _ in range(draw(st.integers(0, 12))):
        kind = draw(st.sampled_from(["frame"] * 8 + ["pair", "comment", "crlf", "error", "garbage", "done", "null"]))
        count += draw(st.sampled_from([0, 1, 1, 1, 1, 1, 3, 90]))
        text = "".join(draw(st.lists(st.sampled_from(TEXTS), max_size=6)))
        one = frame(count, text, compact=compact)
        pieces = {
            "frame": one,
            "pair": one + frame(count + 1, text),
            "comment": b": keep-alive\n\n" + one,
            "crlf": one.replace(b"\n\n", b"\r\n\r\n"),
            "error": b'data: {"error":{"message":"full"},"meta_info":{"completion_tokens":9}}\n\n',
            "garbage": b'data: {"text":"","completion_tokens":3,,}}\n\n',
            "done": b"data: [DONE]\n\n",
            "null": b'data: {"text":"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa","meta_info":{"completion_tokens":null}}\n\n',
        }
        chunks.append(chunk(pieces[kind]))
    if draw(st.booleans()):
        chunks += [chunk(b"data: [DONE]\n\n"), b"0\r\n\r\n"]
    merged: list[bytes] = []
    for one in chunks:
        match draw(st.sampled_from(["own", "own", "own", "own", "joined", "cut"])):
            case "joined" if merged:
                merged[-1] += one
            case "cut":
                merged += _cut(one, draw(st.lists(st.integers(0, 400), max_size=3)))
            case _:
                merged.append(one)
    return merged[: draw(st.integers(len(merged) // 2, len(merged)))]


@given(st.lists(streams(), min_size=1, max_size=4))
def test_any_stream_cut_anywhere(requests: list[list[bytes]]) -> None:
    check(requests)


@given(st.binary(max_size=300), st.lists(st.integers(0, 300), max_size=5))
def test_any_bytes(data: bytes, places: list[int]) -> None:
    check([[HEAD, *_cut(data, places), *answer([1, 2, 3])]])


def test_tails_of_many_lengths() -> None:
    """Many answers with tails of different lengths in one batch."""
    check([[HEAD, *answer(list(range(1, 30)), dp_rank=10**own)] for own in range(15)])
