"""/v1/completions: a choice's `text`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from dsabench.http import Read
from dsabench.load.readers.openai import read_openai
from dsabench.load.readers.reply import Reply


def read_completions(reads: Iterable[Read], start_s: float, *, keep_text: bool = False) -> Reply:
    """See `openai` for how tokens are counted."""
    return read_openai(reads, start_s, _text, keep_text=keep_text)


def _text(choice: dict[str, Any]) -> str:
    text = choice.get("text")
    return text if isinstance(text, str) else ""
