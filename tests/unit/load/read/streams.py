"""Streams as servers send them, for tests of the readers."""

from __future__ import annotations

import json
from typing import Any

from dsabench.http import Read


def reads(*items: tuple[float, Any]) -> list[Read]:
    """One read per event; text is sent as it stands, anything else as JSON."""
    return [(at, f"data: {item if isinstance(item, str) else json.dumps(item)}\n\n".encode()) for at, item in items]


def completion(text: str = "", finish: str | None = None, usage: dict[str, Any] | None = None) -> dict[str, Any]:
    """One event of /v1/completions."""
    frame: dict[str, Any] = {"object": "text_completion", "choices": [{"text": text, "finish_reason": finish}]}
    return frame | ({} if usage is None else {"usage": usage})


def chat(delta: dict[str, Any] | None = None, finish: str | None = None, tokens: int | None = None) -> dict[str, Any]:
    """One event of /v1/chat/completions."""
    frame: dict[str, Any] = {"choices": [{"index": 0, "delta": delta or {}, "finish_reason": finish}]}
    return frame | ({} if tokens is None else {"usage": {"prompt_tokens": 7, "completion_tokens": tokens}})
