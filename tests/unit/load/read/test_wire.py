"""Readers against bytes as sockets deliver them."""

from __future__ import annotations

import asyncio
import http.client
import json
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from time import perf_counter
from urllib.parse import urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsabench.http import Read
from dsabench.load.read.generate import read_generate
from dsabench.load.read.replies import READERS
from dsabench.load.requests import EndpointName, LoadTarget
from dsabench.model.sample import Prompt
from paced_server import Pace, PacedServer
from pd_router import PdRouter
from unit.load.read.streams import chat, completion

TEXTS = ("é", "🙂 ", "sparse ", "", "\n", '"', "語")


def events_of(endpoint: EndpointName, tokens: int) -> list[bytes]:
    """A whole answer; text with characters of one to four bytes."""
    data: list[object] = []
    text = ""
    for count in range(1, tokens + 1):
        new = TEXTS[count % len(TEXTS)]
        text += new
        last = count == tokens
        usage = {"prompt_tokens": 7, "completion_tokens": count}
        if endpoint == "generate":
            reason = {"type": "length"} if last else None
            data.append({"text": text, "meta_info": {**usage, "finish_reason": reason, "dp_rank": 3}})
        elif endpoint == "completions":
            data.append(completion(new, "length" if last else None, usage))
        else:
            data.append(chat({"content": new}, "length" if last else None, count))
    return [json.dumps(item, ensure_ascii=False).encode() for item in data] + [b"[DONE]"]


@st.composite
def bodies(draw: st.DrawFn) -> tuple[EndpointName, int, list[bytes]]:
    """(endpoint, tokens, the body in pieces), with line ends, comments and empty events of every kind, cut anywhere."""
    endpoint = draw(st.sampled_from(tuple(READERS)))
    tokens = draw(st.integers(1, 12))
    newline = draw(st.sampled_from([b"\n", b"\r\n"]))
    body = b""
    for event in events_of(endpoint, tokens):
        body += draw(st.sampled_from([b"", b": keep-alive" + newline * 2, b"data:" + newline * 2, newline]))
        body += b"data: " + event + newline * 2
    places = draw(st.lists(st.integers(1, len(body) - 1), max_size=12, unique=True))
    edges = [0, *sorted(places), len(body)]
    return endpoint, tokens, [body[a:b] for a, b in pairwise(edges)]


@given(bodies())
def test_cuts_and_noise_change_nothing(drawn: tuple[EndpointName, int, list[bytes]]) -> None:
    endpoint, tokens, pieces = drawn
    reply = READERS[endpoint]([(float(i), piece) for i, piece in enumerate(pieces)], 0.0, keep_text=True)
    assert reply.error is None
    assert reply.frames.tokens.tolist() == [1] * tokens
    assert reply.input_tokens == 7
    assert reply.finish_reason == "length"
    assert reply.spoken is not None
    assert reply.spoken.text == "".join(TEXTS[count % len(TEXTS)] for count in range(1, tokens + 1))
    assert endpoint == "generate" or "".join(piece.text for piece in reply.spoken.pieces) == reply.spoken.text
    assert reply.dp_rank == (3 if endpoint == "generate" else None)


@given(st.sampled_from(tuple(READERS)), st.integers(1, 8), st.data())
def test_a_stream_cut_anywhere_keeps_a_prefix(endpoint: EndpointName, tokens: int, data: st.DataObject) -> None:
    body = b"".join(b"data: " + event + b"\n\n" for event in events_of(endpoint, tokens))
    place = data.draw(st.integers(0, len(body)))
    reply = READERS[endpoint]([(1.0, body[:place])], 0.0)
    got = int(reply.frames.tokens.sum())
    assert got <= tokens
    assert (reply.error is None) == (reply.finish_reason == "length")
    if reply.error is not None:
        assert reply.error == f"cut: the stream ended after {got} tokens"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                (
                    *("choices", "delta", "usage", "meta_info", "completion_tokens", "finish_reason", "text", "error"),
                    *("content", "tool_calls", "function", "sglext", "prompt_tokens_details", "type", "output_ids"),
                )
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(
    st.sampled_from(tuple(READERS)), st.lists(JSON.map(json.dumps).map(str.encode) | st.binary(max_size=20), max_size=6)
)
def test_no_stream_breaks_a_reader(endpoint: EndpointName, items: list[bytes]) -> None:
    reply = READERS[endpoint]([(0.0, b"data: " + item + b"\n\n") for item in items], 0.0, keep_text=True)
    assert reply.error is None or reply.error.split(":")[0] in {"server", "abort", "garbage", "cut", "empty"}
    assert (reply.error is None) <= (len(reply.frames) > 0)
    assert all(frame.tokens > 0 for frame in reply.frames)


class _Handler(socketserver.StreamRequestHandler):
    """Answers each request with the server's `pieces`, one write each, and goes on with the next."""

    def setup(self) -> None:
        super().setup()
        self.request.setsockopt(6, 1, 1)  # TCP_NODELAY: pieces stay pieces

    def handle(self) -> None:
        while True:
            length = 0
            while (line := self.rfile.readline()) not in (b"\r\n", b""):
                if line.lower().startswith(b"content-length"):
                    length = int(line.split(b":")[1])
            if not line:
                return
            self.rfile.read(length)
            self.wfile.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
            for piece in self.server.pieces:  # type: ignore[attr-defined]
                self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
                self.wfile.flush()
            self.wfile.write(b"0\r\n\r\n")


@contextmanager
def serving() -> Iterator[socketserver.ThreadingTCPServer]:
    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = True
        pieces: tuple[bytes, ...] = ()

    with Server(("127.0.0.1", 0), _Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def post(connection: http.client.HTTPConnection, path: str, body: bytes) -> list[Read]:
    connection.request("POST", path, body)
    response = connection.getresponse()
    found = []
    while data := response.read1(7):
        found.append((perf_counter(), data))
    return found


def test_a_real_connection_delivers_the_same() -> None:
    with serving() as server:
        connection = http.client.HTTPConnection("127.0.0.1", server.server_address[1])

        @given(bodies())
        def check(drawn: tuple[EndpointName, int, list[bytes]]) -> None:
            endpoint, tokens, server.pieces = drawn  # type: ignore[attr-defined]
            start_s = perf_counter()
            body = LoadTarget("http://x", "m", endpoint=endpoint).body(Prompt(1, tokens, text="x"))
            reply = READERS[endpoint](post(connection, "/", body), start_s)
            assert (reply.error, int(reply.frames.tokens.sum())) == (None, tokens)
            assert 0.0 <= reply.frames.at_s[0] <= reply.frames.at_s[-1] <= perf_counter() - start_s

        check()
        connection.close()


async def through_router(fault: str | None) -> tuple[list[Read], PacedServer, PacedServer, PdRouter]:
    """One request to a router before two servers; its reads, what the servers saw, the router."""
    meta = {"cached_tokens": 5, "spec_accept_length": 2.5, "dp_rank": 1}
    decode_pace = Pace(ttft_s=0.0, gap_s=0.001, tokens_per_frame=2, meta=meta, fault=fault)
    async with (
        PacedServer(Pace(ttft_s=0.0, gap_s=0.0)) as prefill,
        PacedServer(decode_pace) as decode,
        PdRouter(prefill.base_url, decode.base_url) as router,
    ):
        target = LoadTarget(router.base_url, "m")
        parts = urlsplit(target.url)
        connection = http.client.HTTPConnection(parts.hostname or "", parts.port)
        body = target.body(Prompt(3, 9, input_ids=(1, 2, 3)))
        try:
            got = await asyncio.to_thread(post, connection, parts.path, body)
        finally:
            connection.close()
        return got, prefill, decode, router


async def test_behind_a_prefill_decode_router_the_decode_server_answers() -> None:
    got, prefill, decode, router = await through_router(None)
    reply = read_generate(got, 0.0)
    assert reply.error is None
    assert reply.frames.tokens.tolist() == [2, 2, 2, 2, 1]
    assert (reply.input_tokens, reply.cached_tokens, reply.accept_length, reply.dp_rank) == (3, 5, 2.5, 1)
    rooms = [served.body["bootstrap_room"] for served in (*prefill.served, *decode.served)]
    assert rooms == [router.rooms[0]] * 2
    assert decode.served[0].body["bootstrap_port"] == 8998


@pytest.mark.parametrize(("fault", "error"), [("error", "server: KV cache is full"), ("cut", "cut: the stream ended")])
async def test_a_decode_server_that_fails_is_heard_through_the_router(fault: str, error: str) -> None:
    reply = read_generate((await through_router(fault))[0], 0.0)
    assert (reply.error or "").startswith(error)
    assert reply.frames.tokens.tolist() == [2, 2, 2]
