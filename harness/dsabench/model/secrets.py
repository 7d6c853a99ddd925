"""Recognise names of secrets, and keep their values out of records."""

from __future__ import annotations

import re

from pydantic import JsonValue

BEHAVIOUR_PREFIX = "SGLANG_"
"""Variables with this prefix change what the runtime does, wherever they are set."""
_PARTS = ("SECRET", "PASSW", "PASSPHRASE", "CREDENTIAL")
_WORDS = {"PAT", "PASS", "AUTH", "AUTHORIZATION"}
_BEARER = re.compile(r"\b(sk|hf|ghp|pat)[-_][A-Za-z0-9_-]{8,}|(?i:bearer\s+)[A-Za-z0-9._~+/-]{8,}")


def looks_secret(name: str) -> bool:
    """Whether the value of a variable with this name must not be recorded.

    A word of the name that ends in TOKEN or KEY counts, so TOKENIZERS_PARALLELISM does not. Many of the runtime's
    own variables speak of tokens (SGLANG_RESERVED_DECODE_TOKENS), so there only the last word counts.
    """
    words = name.upper().replace("-", "_").split("_")
    if any(part in word for word in words for part in _PARTS) or _WORDS & set(words):
        return True
    judged = words[-1:] if name.startswith(BEHAVIOUR_PREFIX) else [word.removesuffix("S") for word in words]
    return any(word.endswith(("TOKEN", "KEY")) for word in judged)


def without_secrets(value: JsonValue) -> JsonValue:
    """Replace the text under names of secrets; numbers stay (`max_total_tokens` is no secret)."""
    if isinstance(value, dict):
        return {
            name: "<redacted>" if isinstance(inner, str) and looks_secret(name) else without_secrets(inner)
            for name, inner in value.items()
        }
    if isinstance(value, list):
        return [without_secrets(inner) for inner in value]
    return hide_keys(value) if isinstance(value, str) else value


def hide_keys(text: str) -> str:
    """Replace everything that looks like an API key or a bearer token."""
    return _BEARER.sub("<redacted>", text)
