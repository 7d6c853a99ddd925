"""The end of a server's log, fit to be put into a record: short, readable, without secrets."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from dsabench.model.secrets import hide_keys, looks_secret

MAX_LINES = 40
MAX_BYTES = 8192
_PLAIN_VALUE = re.compile(r"(true|false|none|null|auto|yes|no|on|off|-?\d{1,5})?", re.IGNORECASE)
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|[\x00-\x08\x0b\x0c\x0e-\x1f]")


def read_tail(log: Path, *, start: int, env: Mapping[str, str]) -> str:
    """The last lines written after byte `start`; empty where the log cannot be read.

    Of a line that a progress bar wrote over, the last state is kept. The values of variables in `env` whose names speak
    of tokens, keys, secrets or passwords are replaced by their names.
    """
    try:
        with log.open("rb") as file:
            # A device has no end to count from: its size is 0.
            file.seek(max(start, log.stat().st_size - MAX_BYTES))
            data = file.read(MAX_BYTES)
    except OSError:
        return ""
    lines = (line.rstrip().rpartition("\r")[2] for line in data.decode(errors="replace").split("\n"))
    text = "\n".join([_ESCAPES.sub("", line) for line in lines][-MAX_LINES:]).strip("\n")
    return redact(text, env)


def redact(text: str, env: Mapping[str, str]) -> str:
    """The text with the values of secret variables replaced by `<NAME>`."""
    secrets = [(value, name) for name, value in env.items() if looks_secret(name) and not _PLAIN_VALUE.fullmatch(value)]
    for value, name in sorted(secrets, key=lambda secret: -len(secret[0])):  # one may be part of another
        text = text.replace(value, f"<{name}>")
    return hide_keys(text)
