from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsabench.http import SseEvent, SseReader, events

EVENTS = st.lists(
    st.one_of(
        st.text(max_size=30).map(lambda text: json.dumps({"text": text}, ensure_ascii=False)),
        st.just("[DONE]"),
        st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"]), min_size=1, max_size=12),
    ).map(str.encode),
    max_size=12,
)
NEWLINES = st.sampled_from([b"\n", b"\r\n", b"\r"])
NOISE = st.sampled_from([b"", b": keep-alive", b"event: message", b"id: 7", b"retry: 10", b"nonsense", b"\xff\xfe"])


@st.composite
def streams(draw: st.DrawFn) -> tuple[bytes, list[bytes]]:
    """A stream with comments and other fields between the events, and the data in it."""
    data = draw(EVENTS)
    stream = draw(st.sampled_from([b"", b"\xef\xbb\xbf"]))
    for item in data:
        newline = draw(NEWLINES)
        noise = draw(NOISE)
        # After a lone CR a blank line's LF would read as CRLF, so one event keeps one kind of line end.
        stream += (noise + newline if noise else b"") + draw(
            st.sampled_from([b"data: ", b"data:" if item[:1] != b" " else b"data: "])
        )
        stream += item + newline * 2 + draw(st.sampled_from([b"", newline]))
        if newline == b"\r":
            stream += b": end of CR\r"
    return stream, data


def cut(stream: bytes, places: list[int]) -> list[bytes]:
    edges = [0, *sorted(place % (len(stream) + 1) for place in places), len(stream)]
    return [stream[start:end] for start, end in pairwise(edges)]


@given(streams(), st.lists(st.integers(0, 10_000), max_size=40))
def test_any_cutting_gives_the_same_events(stream: tuple[bytes, list[bytes]], places: list[int]) -> None:
    raw, data = stream
    reads = [(float(i), piece) for i, piece in enumerate(cut(raw, places))]
    assert [event.data for event in events(reads)] == data
    assert all(event.whole for event in events(reads))


@given(streams())
def test_byte_by_byte_equals_at_once(stream: tuple[bytes, list[bytes]]) -> None:
    raw, data = stream
    assert [event.data for event in events((0.0, raw[i : i + 1]) for i in range(len(raw)))] == data


@given(st.binary(max_size=200), st.lists(st.integers(0, 200), max_size=10))
def test_any_bytes_are_read_alike_however_cut(raw: bytes, places: list[int]) -> None:
    whole = [event.data for event in events([(0.0, raw)])]
    assert [event.data for event in events([(0.0, piece) for piece in cut(raw, places)])] == whole


@pytest.mark.parametrize("newline", [b"\n", b"\r\n"])
def test_an_event_has_the_time_of_the_read_that_completed_it(newline: bytes) -> None:
    reads = [(1.0, b"data: a" + newline), (2.0, newline + b"data: b"), (3.0, newline * 2 + b"data: c" + newline * 2)]
    assert list(events(reads)) == [(2.0, b"a", True), (3.0, b"b", True), (3.0, b"c", True)]


def test_a_carriage_return_completes_an_event_before_its_line_feed_comes() -> None:
    assert list(events([(1.0, b"data: a\r\n\r"), (9.0, b"\n")])) == [(1.0, b"a", True)]


def test_data_lines_of_one_event_are_joined() -> None:
    assert list(events([(0.0, b"data: a\ndata:b\ndata\n\n")])) == [(0.0, b"a\nb\n", True)]


def test_the_end_shows_what_was_cut() -> None:
    assert list(events([(4.0, b"data: a\n\ndata: [DO")])) == [(4.0, b"a", True), (4.0, b"[DO", False)]
    assert list(events([(4.0, b"data: [DONE]\n")])) == [SseEvent(4.0, b"[DONE]", whole=False)]


def test_a_gigantic_frame_in_small_reads_is_read_in_linear_time() -> None:
    reader = SseReader()
    data = b"x" * 16_000_000
    pieces = [b"data: ", *(data[i : i + 4096] for i in range(0, len(data), 4096)), b"\n\n"]
    found = [event for piece in pieces for event in reader.feed(0.0, piece)]
    assert [len(event.data) for event in found] == [16_000_000]
