"""sglang's /generate stream → what is measured. Tokens are counted by `completion_tokens`, never by text growth."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple

import orjson
from pydantic import JsonValue

from dsabench.load.sse import DONE, Read, events
from dsabench.model.sample import NO_FRAMES, Frames

_MESSAGE_CHARS = 200


@dataclass(frozen=True, slots=True)
class Reply:
    """One parsed stream; `error` starts with one of the classes below.

    - `server: …` an error object inside the stream
    - `abort: …` the server gave the request up
    - `garbage: …` a frame that is no JSON, or lacks the counts
    - `cut: …` the stream ended before the answer did
    - `empty: …` the answer has no token
    """

    frames: Frames = NO_FRAMES
    input_tokens: int | None = None
    cached_tokens: int | None = None
    accept_length: float | None = None
    error: str | None = None


class _Counts(NamedTuple):
    """The fields of one frame's `meta_info` that are measured."""

    completion_tokens: int
    input_tokens: int | None
    cached_tokens: int | None
    accept_length: float | None
    finished: bool
    aborted: str | None


class _FrameError(Exception):
    """This frame ends the reply. `str(error)` is the sample's error."""


def parse_reply(reads: Iterable[Read], start_s: float) -> Reply:
    """Frames with times relative to `start_s`. A frame that brings no new token gives none.

    What came before an error is kept.
    """
    frames: list[tuple[float, int]] = []
    tokens, last, done = 0, None, False
    try:
        for at_s, data, whole in events(reads):
            if data == DONE:
                done = True
                break
            try:
                last = _counts(data)
            except _FrameError:
                if whole:
                    raise
                break  # cut inside this frame
            if last.completion_tokens > tokens:
                frames.append((at_s - start_s, last.completion_tokens - tokens))
                tokens = last.completion_tokens
    except _FrameError as error:
        return replace(_reply(frames, last), error=str(error))
    reply = _reply(frames, last)
    if last is not None and last.aborted is not None:
        return replace(reply, error=f"abort: {last.aborted}")
    if not done and (last is None or not last.finished):
        return replace(reply, error=f"cut: the stream ended after {tokens} tokens")
    if tokens == 0:
        return replace(reply, error="empty: the answer has no token")
    return reply


def _reply(pairs: list[tuple[float, int]], last: _Counts | None) -> Reply:
    frames = Frames.of(pairs)
    if last is None:
        return Reply(frames)
    return Reply(frames, last.input_tokens, last.cached_tokens, last.accept_length)


def _counts(data: bytes) -> _Counts:
    try:
        frame: JsonValue = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise _FrameError(f"garbage: {_shortened(data.decode('utf-8', 'replace'))!r} is not JSON") from error
    match frame:
        case {"error": problem}:
            raise _FrameError(f"server: {_message(problem)}")
        case {"meta_info": {"completion_tokens": int(tokens), **meta}}:
            reason = meta.get("finish_reason")
            return _Counts(
                tokens,
                _int(meta.get("prompt_tokens")),
                _int(meta.get("cached_tokens")),
                _float(meta.get("spec_accept_length")),
                reason is not None,
                _message(reason) if isinstance(reason, dict) and reason.get("type") == "abort" else None,
            )
    raise _FrameError(
        f"garbage: a frame without meta_info.completion_tokens: {_shortened(orjson.dumps(frame).decode())}"
    )


def _int(value: object) -> int | None:
    return value if isinstance(value, int) else None


def _float(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) else None


def _message(problem: JsonValue) -> str:
    text = problem.get("message") if isinstance(problem, dict) else problem
    return _shortened(text if isinstance(text, str) else orjson.dumps(problem).decode())


def _shortened(text: str) -> str:
    return " ".join(text.split())[:_MESSAGE_CHARS]
