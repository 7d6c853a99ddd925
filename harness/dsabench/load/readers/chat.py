"""/v1/chat/completions: content, reasoning and tool calls are all generated tokens, so all of them count."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from dsabench.http import Read
from dsabench.load.readers.openai import read_openai
from dsabench.load.readers.reply import Reply


def read_chat(reads: Iterable[Read], start_s: float, *, keep_text: bool = False) -> Reply:
    """See `openai` for how tokens are counted."""
    return read_openai(reads, start_s, _text, keep_text=keep_text)


def _text(choice: dict[str, Any]) -> str:
    delta = choice.get("delta")
    return "".join(part for part in _parts(delta) if isinstance(part, str)) if isinstance(delta, dict) else ""


def _parts(delta: dict[str, Any]) -> Iterator[object]:
    """`reasoning` is what vllm calls sglang's `reasoning_content`; some servers send both, with one text."""
    yield delta.get("reasoning_content") or delta.get("reasoning")
    yield delta.get("content")
    calls = delta.get("tool_calls")
    for call in calls if isinstance(calls, list) else ():
        if isinstance(call, dict) and isinstance(function := call.get("function"), dict):
            yield function.get("name")
            yield function.get("arguments")
