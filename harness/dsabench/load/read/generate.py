"""sglang's native /generate. Tokens are counted by `completion_tokens`, never by text growth.

Every frame tells the whole answer so far; with the server's `--incremental-streaming-output` its text is only what is
new, while the counts stay cumulative. Behind a PD router the frames are the decode server's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import orjson

from dsabench.http import Read
from dsabench.load.read.json_stream import (
    JsonStream,
    ReplyText,
    StreamReply,
    accept_length_of,
    as_int,
    broken_count,
    broken_end,
    message_of,
    problem_of,
    shown,
)
from dsabench.model.sample import Frames

if TYPE_CHECKING:
    from pydantic import JsonValue


@dataclass(slots=True)
class _Text:
    """The answer's text as it grows."""

    text: str = ""
    first_at_s: float | None = None
    beside_text: int | None = None
    in_parts: bool = False

    def grow(self, at_s: float, frame: dict[str, Any], tokens: int) -> None:
        text = frame.get("text")
        if not isinstance(text, str) or not text:
            return
        self.beside_text = tokens
        if self.first_at_s is None:
            self.first_at_s = at_s
        if _is_part(frame, tokens):
            self.text, self.in_parts = self.text + text, True
        else:
            self.text = text


def _is_part(frame: dict[str, Any], tokens: int) -> bool:
    """Whether a frame has only what is new: its ids are fewer than its tokens."""
    ids = frame.get("output_ids")
    return isinstance(ids, list) and len(ids) < tokens


def read_generate(
    reads: Iterable[Read], start_s: float, *, asked: int | None = None, keep_text: bool = False
) -> StreamReply:
    """Frames with times relative to `start_s`. A frame that brings no new token gives none.

    What came before an error is kept. `asked`: tokens that were asked for, where that is known.
    """
    stream = JsonStream(reads, start_s)
    pairs: list[tuple[float, int]] = []
    tokens, text = 0, _Text()
    values: dict[str, Any] = {}
    for at_s, frame in stream:
        info = frame.get("meta_info") if isinstance(frame, dict) else None
        count = as_int(info.get("completion_tokens")) if isinstance(info, dict) else None
        if not isinstance(frame, dict) or not isinstance(info, dict) or count is None:
            stream.refuse(f"a frame without meta_info.completion_tokens: {shown(frame)}")
            break
        if (broken := _broken(info, asked, tokens)) is not None:
            stream.refuse(broken)
            break
        values = info
        if count > tokens:
            pairs.append((at_s, count - tokens))
            tokens = count
        if keep_text:
            text.grow(at_s, frame, count)
    reason = values.get("finish_reason")
    aborted = message_of(reason) if _name_of(reason) == "abort" else None
    end = broken_end(tokens, asked, _name_of(reason))
    error = stream.verdict(tokens, finished=reason is not None, aborted=aborted, broken=end)
    spoken = _spoken(text, tokens, values.get("cached_tokens_details")) if keep_text else None
    return _reply(Frames.of(pairs), values, error, spoken)


def _broken(info: Mapping[str, Any], asked: int | None, before: int) -> str | None:
    return (
        broken_count("completion_tokens", info.get("completion_tokens"), asked, before)
        or broken_count("prompt_tokens", info.get("prompt_tokens"))
        or broken_count("cached_tokens", info.get("cached_tokens"))
    )


def reply_from_last_frame(
    last: bytes, frames: Frames, tokens: int, asked: int | None, first_text_s: Callable[[], float | None] | None
) -> StreamReply | None:
    """The reply of an answer that ended with `[DONE]` and whose frames are known, of its last frame's JSON.

    None where that frame says anything but that all is well after so many `tokens`. With `first_text_s`, which finds when
    the first text came, the reply has its text.
    """
    try:
        frame = orjson.loads(last)
    except orjson.JSONDecodeError:
        return None
    match frame:
        case {"meta_info": {"completion_tokens": int() as count} as values} if problem_of(frame) is None:
            reason = _name_of(values.get("finish_reason"))
            broken = _broken(values, asked, 0) or broken_end(tokens, asked, reason)
            if count is True or count != tokens or reason == "abort" or broken is not None:
                return None
            spoken = None if first_text_s is None else _last_text(frame, tokens, first_text_s)
            return _reply(frames, values, None, spoken) if first_text_s is None or spoken is not None else None
    return None


def _last_text(frame: dict[str, Any], tokens: int, first_text_s: Callable[[], float | None]) -> ReplyText | None:
    """The text of the last frame, where that is all of it."""
    text = _Text()
    text.grow(0.0, frame, tokens)
    if text.in_parts or not text.text or (at_s := first_text_s()) is None:
        return None
    text.first_at_s = at_s
    return _spoken(text, tokens, frame["meta_info"].get("cached_tokens_details"))


def _reply(frames: Frames, values: dict[str, Any], error: str | None, spoken: ReplyText | None) -> StreamReply:
    """`values` are the last frame's `meta_info`; of a request, those of all others are of no interest here."""
    return StreamReply(
        frames=frames,
        input_tokens=as_int(values.get("prompt_tokens")),
        cached_tokens=as_int(values.get("cached_tokens")),
        accept_length=accept_length_of(values.get("spec_accept_length")),
        dp_rank=as_int(values.get("dp_rank")),
        finish_reason=_name_of(values.get("finish_reason")),
        error=error,
        spoken=spoken,
    )


def _name_of(reason: JsonValue) -> str | None:
    kind = reason.get("type") if isinstance(reason, dict) else reason
    return kind if isinstance(kind, str) else None


def _spoken(text: _Text, tokens: int, details: object) -> ReplyText:
    return ReplyText(
        text=text.text,
        first_at_s=text.first_at_s,
        in_parts=text.in_parts,
        reported_tokens=tokens or None,
        reported_beside_text=text.beside_text,
        cached_tokens_details=details if isinstance(details, dict) else None,
    )
