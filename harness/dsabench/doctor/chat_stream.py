"""Read a chat's stream as a client does: text, thoughts, tool calls, and where each stood."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import orjson

from dsabench.errors import one_line
from dsabench.http import DONE
from dsabench.load.read.json_stream import as_int, problem_of


def dig(value: Any, *path: str | int) -> Any:
    """What stands at a path of keys and positions; None where anything on it is missing or of another kind."""
    for step in path:
        if isinstance(step, str) and isinstance(value, dict):
            value = value.get(step)
        elif isinstance(step, int) and isinstance(value, list) and -len(value) <= step < len(value):
            value = value[step]
        else:
            return None
    return value


def text_at(value: Any, *path: str | int) -> str:
    """The text at a path; empty where there is none."""
    found = dig(value, *path)
    return found if isinstance(found, str) else ""


def number_at(value: Any, *path: str | int) -> float | None:
    """The number at a path."""
    found = dig(value, *path)
    return float(found) if isinstance(found, (int, float)) and not isinstance(found, bool) else None


@dataclass(frozen=True, slots=True)
class ToolCall:
    """The first tool call, as far as its parts have come."""

    index: int | None
    id: str
    name: str
    arguments: str

    def plus(self, part: object) -> ToolCall:
        """With one more part; a part of another call adds nothing."""
        more = call_of(part)
        if more.index not in {None, self.index}:
            return self
        return ToolCall(self.index, self.id or more.id, self.name or more.name, self.arguments + more.arguments)

    def as_message(self) -> dict[str, Any]:
        """The form in which a conversation holds it."""
        return {"id": self.id, "type": "function", "function": {"name": self.name, "arguments": self.arguments}}


def call_of(part: object) -> ToolCall:
    """The call that begins with this part, whatever that is."""
    name, arguments = (text_at(part, "function", key) for key in ("name", "arguments"))
    return ToolCall(as_int(dig(part, "index")), text_at(part, "id"), name, arguments)


@dataclass(frozen=True, slots=True)
class ChatStream:
    """An answer so far."""

    thought: str = ""
    """`reasoning_content`."""
    said: str = ""
    """`content`."""
    call: ToolCall | None = None
    finish_reason: str | None = None
    ended: bool = False
    """The server told the end."""
    error: str = ""
    """One line: why this is no answer. Nothing comes after it."""
    refused: bool = False
    """`error` is what came with another HTTP status than 200."""
    last_s: float | None = None
    """When the last text came, in seconds from asking; None where none did."""
    limit_s: float | None = None
    """The time limit, where that ended it."""

    @property
    def is_over(self) -> bool:
        """Nothing more is to come."""
        return self.ended or bool(self.error)

    @property
    def is_cut(self) -> bool:
        """The server ended it at the number of tokens that was allowed."""
        return self.finish_reason == "length"

    @property
    def told(self) -> str:
        """How much has come, in words."""
        begun = "" if self.call is None else f", a call of {self.call.name or 'no tool'}"
        last = "" if self.last_s is None else f", the last after {self.last_s:.1f} s"
        return f"{len(self.thought)} characters of thinking, {len(self.said)} of answer{begun}{last}"

    def after(self, data: bytes, at_s: float) -> ChatStream:
        """With one more frame: an event's data."""
        if data == DONE:
            return replace(self, ended=True)
        if not data:  # keeps the connection alive
            return self
        try:
            frame = orjson.loads(data)
        except orjson.JSONDecodeError:
            frame = None
        if not isinstance(frame, dict):
            return replace(self, error=f"not a JSON object: {one_line(data.decode(errors='replace'), 80)}")
        if (problem := problem_of(frame)) is not None:
            return replace(self, error=f"the server says in its answer: {one_line(problem, 200)}")
        return self._with_choice(dig(frame, "choices", 0), at_s)

    def _with_choice(self, choice: object, at_s: float) -> ChatStream:
        part = dig(choice, "delta") or dig(choice, "message")
        thought, said = text_at(part, "reasoning_content"), text_at(part, "content")
        calls = dig(part, "tool_calls")
        calls = calls if isinstance(calls, list) else []
        call = self.call
        for one in calls:
            call = call_of(one) if call is None else call.plus(one)
        finish = text_at(choice, "finish_reason") or self.finish_reason
        return replace(
            self,
            thought=self.thought + thought,
            said=self.said + said,
            call=call,
            finish_reason=finish,
            ended=finish is not None,
            error="the server gave the request up" if finish == "abort" else "",
            last_s=at_s if thought or said or calls else self.last_s,
        )
