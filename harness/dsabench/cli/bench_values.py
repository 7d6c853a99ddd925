"""How the values of `dsabench bench`'s flags are read; each says in one line what is wrong with one."""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable, Sequence
from urllib.parse import urlsplit

from dsabench.errors import nearest

SLO_NAMES = ("ttft", "tpot", "e2el")


def one_of(allowed: Sequence[str], others: Sequence[str]) -> Callable[[str], str]:
    """One of `allowed`; `others` are known to bench_serving only."""

    def read(text: str) -> str:
        if text in allowed:
            return text
        if text in others:
            raise argparse.ArgumentTypeError(f"{text} is not supported by dsabench bench; it has {', '.join(allowed)}")
        near = nearest(text, allowed)
        hint = f"; did you mean {near}?" if near else f"; allowed: {', '.join(allowed)}"
        raise argparse.ArgumentTypeError(f"no such choice {text!r}{hint}")

    return read


def whole(least: int, most: int | None = None) -> Callable[[str], int]:
    """A whole number between the bounds, both included."""

    def read(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is no whole number") from None
        if value < least or (most is not None and value > most):
            bound = f"at least {least}" + (f" and at most {most}" if most is not None else "")
            raise argparse.ArgumentTypeError(f"{value} is not {bound}")
        return value

    return read


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no number") from None


def positive(text: str) -> float:
    """A finite number above 0."""
    value = _number(text)
    if not math.isfinite(value) or value <= 0:
        raise argparse.ArgumentTypeError(f"{text} is not a finite number above 0")
    return value


def rate(text: str) -> float:
    """Above 0, and may be infinite."""
    value = _number(text)
    if not value > 0:
        raise argparse.ArgumentTypeError(f"{text} is not above 0")
    return value


def ratio(text: str) -> float:
    """Between 0 and 1."""
    value = _number(text)
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError(f"{text} is not between 0 and 1")
    return value


def slo(text: str) -> tuple[str, float]:
    """`KEY:MILLISECONDS`."""
    name, colon, value = text.partition(":")
    if name not in SLO_NAMES or not colon:
        raise argparse.ArgumentTypeError(f"{text!r}: expected KEY:VALUE with KEY in {', '.join(SLO_NAMES)}")
    return name, positive(value)


def address(text: str) -> str:
    """An http(s) address without a user's name."""
    try:
        parts = urlsplit(text)
        usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise argparse.ArgumentTypeError(f"{text!r} is no address like http://127.0.0.1:30000")
    if "@" in parts.netloc:  # not repeated: it holds a password
        raise argparse.ArgumentTypeError("an address with a user's name is not supported; use --header")
    return text


def json_object(text: str) -> dict[str, object]:
    """A JSON object."""
    try:
        value = json.loads(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"not JSON: {error}") from None
    if not isinstance(value, dict):
        raise argparse.ArgumentTypeError("expected a JSON object")
    return value
