"""Why a setting is not worth a boot."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from dsabench.model.runtime import RuntimeSpec


@dataclass(frozen=True, slots=True)
class Refusal:
    """A rule that says the runtime would not run this setting, or would compute garbage."""

    rule: str
    """Its id, as in docs/sglang-rules.md."""
    line: str
    """One line that begins with the id: the settings, the runtime's own words, the nearest setting that works."""


@dataclass(frozen=True, slots=True)
class Note:
    """A rule's word on a setting that boots: it runs as something else, or as asked at a price worth knowing."""

    rule: str
    """Its id, as in docs/sglang-rules.md."""
    line: str
    """One line that begins with the id."""
    overrules: bool
    """Whether it runs as something else than asked."""


Refuse = Callable[[RuntimeSpec], Refusal | None]
"""Asked of every setting before it is booted; None where nothing forbids it."""


Annotate = Callable[[RuntimeSpec], tuple[Note, ...]]
"""All that the rules say of a setting beside a refusal; empty where they have nothing to say."""


def refuse_nothing(_spec: RuntimeSpec) -> Refusal | None:
    """For runtimes without rules."""
    return None


def annotate_nothing(_spec: RuntimeSpec) -> tuple[Note, ...]:
    """For runtimes without rules."""
    return ()
