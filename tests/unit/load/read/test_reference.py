"""The readers against the reference runtime's own streams."""

from __future__ import annotations

import http.client
from dataclasses import replace
from urllib.parse import urlsplit

import pytest

from dsabench.load.read.json_stream import StreamReply
from dsabench.load.read.replies import READERS
from dsabench.load.requests import EndpointName, LoadTarget
from dsabench.model.sample import Prompt
from unit.load.read.test_wire import post
from unit.reference.server.serving import Server

PROMPT = Prompt(12, 24, text="sparse attention")


def ask(server: Server, target: LoadTarget) -> StreamReply:
    parts = urlsplit(target.url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port)
    try:
        return READERS[target.endpoint](post(connection, parts.path, target.body(PROMPT)), 0.0, keep_text=True)
    finally:
        connection.close()


@pytest.mark.parametrize("endpoint", READERS)
def test_all_endpoints_count_the_same_answer(server: Server, endpoint: EndpointName) -> None:
    reply = ask(server, LoadTarget(server.url, "tiny", endpoint=endpoint))
    assert (reply.error, reply.finish_reason, reply.count_source) == (None, "length", "frames")
    assert reply.frames.tokens.sum() == 24
    assert reply.cached_tokens is not None
    assert reply.input_tokens is not None
    assert reply.spoken is not None
    assert reply.spoken.reported_tokens == 24


def test_completions_and_generate_give_the_same_text(server: Server) -> None:
    target = LoadTarget(server.url, "tiny")
    native, openai = (ask(server, replace(target, endpoint=name)) for name in ("generate", "completions"))
    assert native.spoken is not None
    assert openai.spoken is not None
    assert native.spoken.text == openai.spoken.text
    assert native.input_tokens == openai.input_tokens == len("sparse attention")


def test_without_usage_events_are_counted_and_it_is_said(server: Server) -> None:
    reply = ask(server, LoadTarget(server.url, "tiny", endpoint="completions", usage=False))
    assert (reply.error, reply.count_source) == (None, "deltas")
    assert 0 < reply.frames.tokens.sum() <= 24


def test_a_total_at_the_end_counts_all_tokens(server: Server) -> None:
    target = LoadTarget(server.url, "tiny", endpoint="completions", usage=False)
    reply = ask(server, replace(target, extra_body={"stream_options": {"include_usage": True}}))
    assert (reply.error, reply.count_source, reply.frames.tokens.sum()) == (None, "total", 24)
