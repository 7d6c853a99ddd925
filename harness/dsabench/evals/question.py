"""One question of an eval."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Question:
    """What is sent, and what would be right."""

    id: str
    """Unique inside its eval, and the same in every run that has the question."""
    prompt: str
    expected: str
    group: str | None = None
    """Subject or cell that gets a score of its own."""
    words: int | None = None
    """Length of the text, where the eval asks several."""


def fill(template: str, values: Mapping[str, str]) -> str:
    """The template with `{name}` replaced for each of these names; other braces stay (LaTeX is full of them)."""
    pattern = "|".join(re.escape(f"{{{name}}}") for name in values)
    return re.sub(pattern, lambda match: values[match[0][1:-1]], template)
