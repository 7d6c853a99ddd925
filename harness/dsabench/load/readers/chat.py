"""/v1/chat/completions: content, reasoning and tool calls are all generated tokens, so all of them count."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from dsabench.load.readers.openai import read_openai
from dsabench.load.readers.reply import Reply
from dsabench.load.sse import Read

_TEXTS = ("reasoning_content", "reasoning", "content", "refusal")
"""sglang and older vllm say `reasoning_content`, newer vllm `reasoning`; where a delta has both they are one text."""


def read_chat(reads: Iterable[Read], start_s: float, *, keep_text: bool = False) -> Reply:
    """See `openai` for how tokens are counted."""
    return read_openai(reads, start_s, _text, keep_text=keep_text)


def _text(choice: dict[str, Any]) -> str:
    delta = choice.get("delta")
    return "".join(_parts(delta)) if isinstance(delta, dict) else ""


def _parts(delta: dict[str, Any]) -> Iterator[str]:
    seen: set[str] = set()
    for name in _TEXTS:
        text = delta.get(name)
        if isinstance(text, str) and not (name == "reasoning" and text in seen):
            seen.add(text)
            yield text
    calls = delta.get("tool_calls")
    for call in calls if isinstance(calls, list) else ():
        function = call.get("function") if isinstance(call, dict) else None
        for name in ("name", "arguments") if isinstance(function, dict) else ():
            if isinstance(text := function.get(name), str):
                yield text
