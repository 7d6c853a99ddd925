"""Which names speak of secrets, and keeping their values out of records."""

from __future__ import annotations

import re

from pydantic import JsonValue

BEHAVIOUR_PREFIX = "SGLANG_"
"""Variables whose names begin so change what the runtime does, wherever they are set."""
_PARTS = ("SECRET", "PASSW", "PASSPHRASE", "CREDENTIAL")
_WORDS = {"PAT", "PASS", "AUTH", "AUTHORIZATION"}
_BEARER = re.compile(r"\b(sk|hf|ghp|pat)[-_][A-Za-z0-9_-]{8,}|(?i:bearer\s+)[A-Za-z0-9._~+/-]{8,}")


def looks_secret(name: str) -> bool:
    """Whether a variable's name says that its value must not be recorded.

    A word of the name that ends in TOKEN or KEY counts, so that TOKENIZERS_PARALLELISM does not. The runtime's own
    vocabulary speaks of tokens a lot (SGLANG_RESERVED_DECODE_TOKENS): there only the last word counts.
    """
    words = name.upper().replace("-", "_").split("_")
    if any(part in word for word in words for part in _PARTS) or _WORDS & set(words):
        return True
    judged = words[-1:] if name.startswith(BEHAVIOUR_PREFIX) else [word.removesuffix("S") for word in words]
    return any(word.endswith(("TOKEN", "KEY")) for word in judged)


def without_secrets(value: JsonValue) -> JsonValue:
    """The same value with the text under secret-looking keys replaced; numbers stay (`max_total_tokens` is none)."""
    if isinstance(value, dict):
        return {
            name: "<redacted>" if isinstance(inner, str) and looks_secret(name) else without_secrets(inner)
            for name, inner in value.items()
        }
    if isinstance(value, list):
        return [without_secrets(inner) for inner in value]
    return hide_keys(value) if isinstance(value, str) else value


def hide_keys(text: str) -> str:
    """Text without what has the shape of an API key or a bearer token."""
    return _BEARER.sub("<redacted>", text)
