"""What /v1/completions and /v1/chat/completions have in common: events of choices with deltas, and usage.

Tokens, best source first (`Reply.count_source` says which it was):

- `frames`: every event with text carries `usage.completion_tokens` (`continuous_usage_stats`): counted as /generate is.
- `total`: usage came once, at the end (`include_usage`): the total is the server's, its spread over the events is not.
  With k events for n tokens each gets n/k, rounded so that the sum is n; where n < k, the events that came closest
  behind another give theirs up (a step that ends the reasoning sends two events for one token).
- `deltas`: no usage: one token per event with text, which is too few wherever a step brings several.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dsabench.http import Read
from dsabench.load.read.json_stream import (
    JsonStream,
    ReplyText,
    StreamReply,
    TextPiece,
    as_int,
    broken_count,
    broken_end,
    shown,
    spec_accept_length,
)
from dsabench.model.sample import CountSource, Frames

Pairs = list[tuple[float, int]]
TextOf = Callable[[dict[str, Any]], str]
"""Everything a choice says in this event, whatever the field; "" for a choice that says nothing."""


@dataclass(slots=True)
class _OpenAiEvents:
    """What the events said so far."""

    pieces: list[TextPiece] = field(default_factory=list)
    grown: Pairs = field(default_factory=list)
    """(time, new tokens) wherever `usage.completion_tokens` grew."""
    tokens: int | None = None
    beside_text: int | None = None
    untold: int = 0
    """Events with text but without usage."""
    finish_reason: str | None = None
    usage: dict[str, Any] = field(default_factory=dict)
    extension: dict[str, Any] = field(default_factory=dict)
    """sglang's `sglext`: what OpenAI's format has no place for."""

    def take(self, at_s: float, frame: dict[str, Any], text: str, asked: int | None) -> str | None:
        """Add an event; returns which rule about counts it breaks."""
        usage = frame.get("usage")
        count = as_int(usage.get("completion_tokens")) if isinstance(usage, dict) else None
        if isinstance(usage, dict):
            prompt = usage.get("prompt_tokens")
            broken = broken_count("completion_tokens", usage.get("completion_tokens"), asked, self.tokens or 0)
            broken = broken or broken_count("prompt_tokens", prompt)
            if broken is not None:
                return broken
        if isinstance(usage, dict):
            self.usage |= usage
        if isinstance(extension := frame.get("sglext"), dict):
            self.extension |= extension
        if count is not None:
            if count > (self.tokens or 0):
                self.grown.append((at_s, count - (self.tokens or 0)))
            self.tokens = max(count, self.tokens or 0)
        if text:
            self.pieces.append(TextPiece(at_s, text))
            self.beside_text = count if count is not None else self.beside_text
            self.untold += count is None
        return None


def read_openai(
    reads: Iterable[Read], start_s: float, text_of: TextOf, *, asked: int | None, keep_text: bool
) -> StreamReply:
    """Frames with times relative to `start_s`; what came before an error is kept."""
    stream, events = JsonStream(reads, start_s), _OpenAiEvents()
    for at_s, frame in stream:
        choices = frame.get("choices", []) if isinstance(frame, dict) else None
        if not isinstance(frame, dict) or not isinstance(choices, list) or not frame.keys() & {"choices", "usage"}:
            stream.refuse(f"a frame without choices: {shown(frame)}")
            break
        said = [choice for choice in choices if isinstance(choice, dict)]
        if (broken := events.take(at_s, frame, "".join(map(text_of, said)), asked)) is not None:
            stream.refuse(broken)
            break
        for choice in said:
            if isinstance(reason := choice.get("finish_reason"), str):
                events.finish_reason = reason
    pairs, source = _counted(events)
    tokens = sum(count for _, count in pairs)
    aborted = "the server gave the request up" if events.finish_reason == "abort" else None
    cached = _cached(events)
    end = broken_count("cached_tokens", cached)
    if events.tokens is not None:  # events with text alone are no count
        end = end or broken_end(events.tokens, asked, events.finish_reason)
    error = stream.verdict(tokens, finished=events.finish_reason is not None, aborted=aborted, broken=end)
    if error is not None and error.startswith("empty:") and events.tokens:
        error = f"empty: usage counts {events.tokens} tokens, but no event had any text, so none has a time"
    return StreamReply(
        frames=Frames.of(pairs),
        input_tokens=as_int(events.usage.get("prompt_tokens")),
        cached_tokens=cached,
        accept_length=spec_accept_length(events.extension),
        finish_reason=events.finish_reason,
        count_source=source,
        error=error,
        spoken=_spoken(events) if keep_text else None,
    )


def _counted(events: _OpenAiEvents) -> tuple[Pairs, CountSource]:
    at_s = [piece.at_s for piece in events.pieces]
    if events.tokens and events.untold == 0 and (events.pieces or len(events.grown) > 1):
        return events.grown, "frames"
    if events.tokens:
        return spread_tokens(at_s, events.tokens), "total"
    return [(at, 1) for at in at_s], "deltas"


def spread_tokens(at_s: Sequence[float], tokens: int) -> Pairs:
    """`tokens` over events at these times; see the module's text."""
    if not at_s:
        return []
    if tokens >= len(at_s):
        counts = np.diff(np.arange(len(at_s) + 1) * tokens // len(at_s))
        return list(zip(at_s, counts.tolist(), strict=True))
    distances = np.diff(np.asarray(at_s), prepend=-np.inf)
    kept = np.sort(np.argsort(-distances, kind="stable")[:tokens])
    return [(at_s[place], 1) for place in kept.tolist()]


def _cached(events: _OpenAiEvents) -> int | None:
    details = events.usage.get("prompt_tokens_details")
    if isinstance(details, dict) and (cached := as_int(details.get("cached_tokens"))) is not None:
        return cached
    places = events.extension.get("cached_tokens_details")
    if not isinstance(places, dict):
        return None
    return sum(as_int(places.get(place)) or 0 for place in ("device", "host", "storage"))


def _spoken(events: _OpenAiEvents) -> ReplyText:
    details = events.extension.get("cached_tokens_details")
    return ReplyText(
        text="".join(piece.text for piece in events.pieces),
        first_at_s=events.pieces[0].at_s if events.pieces else None,
        pieces=tuple(events.pieces),
        reported_tokens=events.tokens,
        reported_beside_text=events.beside_text,
        cached_tokens_details=details if isinstance(details, dict) else None,
    )


def read_chat(
    reads: Iterable[Read], start_s: float, *, asked: int | None = None, keep_text: bool = False
) -> StreamReply:
    """See `openai` for how tokens are counted."""
    return read_openai(reads, start_s, _chat_text, asked=asked, keep_text=keep_text)


def _chat_text(choice: dict[str, Any]) -> str:
    delta = choice.get("delta")
    return "".join(part for part in _parts(delta) if isinstance(part, str)) if isinstance(delta, dict) else ""


def said_in_chat(reads: Iterable[Read]) -> str:
    """Reasoning and content of an answer, as far as it came: what a later turn repeats of it. Tool calls are left out."""
    said: list[object] = []
    for _, frame in JsonStream(reads, 0.0):
        choices = frame.get("choices") if isinstance(frame, dict) else None
        for choice in choices if isinstance(choices, list) else ():
            delta = choice.get("delta") if isinstance(choice, dict) else None
            said += _said(delta) if isinstance(delta, dict) else ()
    return "".join(part for part in said if isinstance(part, str))


def _said(delta: Mapping[str, Any]) -> tuple[object, object]:
    """`reasoning` is what vllm calls sglang's `reasoning_content`; some servers send both, with one text."""
    return delta.get("reasoning_content") or delta.get("reasoning"), delta.get("content")


def _parts(delta: Mapping[str, Any]) -> Iterator[object]:
    yield from _said(delta)
    calls = delta.get("tool_calls")
    for call in calls if isinstance(calls, list) else ():
        if isinstance(call, dict) and isinstance(function := call.get("function"), dict):
            yield function.get("name")
            yield function.get("arguments")


def read_completions(
    reads: Iterable[Read], start_s: float, *, asked: int | None = None, keep_text: bool = False
) -> StreamReply:
    """See `openai` for how tokens are counted."""
    return read_openai(reads, start_s, _completion_text, asked=asked, keep_text=keep_text)


def _completion_text(choice: dict[str, Any]) -> str:
    text = choice.get("text")
    return text if isinstance(text, str) else ""
