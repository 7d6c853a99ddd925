"""What a rule is: a condition on a setting, what the runtime then says or does, and the nearest setting without it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from dsabench.model.value import KnobValue
from dsabench.runtimes.plan import Severity
from dsabench.sglang.rules.setting import Setting
from dsabench.sglang.versions import Version

V9, V10, V11, V12, V13, V14, V15, V16 = (Version(0, 5, patch) for patch in range(9, 17))
V17, V18, V19, V20, V21, V22, V23 = (Version(0, 5, patch) for patch in range(17, 24))

READ = (V9, V10, V11, V12, V13, V14, V15, V16, V17, V18, V19, V20, V21, V22, V23)
"""The versions whose sources were read."""

"""error: it does not run, or computes garbage. overwritten: it runs with something else than asked. advisory: it runs
as asked, outside what its authors tested, or at a price worth knowing."""

Kind = Literal[
    "ValueError",
    "AssertionError",
    "RuntimeError",
    "NotImplementedError",
    "TypeError",
    "FileNotFoundError",
    "argparse",
    "log",
    "silent",
    "document",
]
"""How the runtime says it. `log` is a line of its log, `silent` is told in our words, `document` is its manual's note."""

Change = Mapping[str, KnobValue | None]
"""Knobs to set; None takes the knob out."""


@dataclass(frozen=True, slots=True)
class Words:
    """What the runtime says from a version on. Places in braces are attributes of the setting `s`."""

    since: Version
    kind: Kind
    text: str = ""
    """Empty for an assertion without a message."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One known combination that does not do what was asked, from `since` to `until` (None: still there in 0.5.23)."""

    id: str
    severity: Severity
    condition: str
    """In our words, one line."""
    words: tuple[Words, ...]
    """Oldest first."""
    fix: str
    source: str
    """Where the runtime checks or does it: `VERSION=path:line`, or the document that says so."""
    when: Callable[[Setting], bool]
    change: Callable[[Setting], Change] | None = None
    """The nearest legal setting as knobs; None where it is not a matter of knobs."""
    since: Version = V9
    until: Version | None = None
    knobs: tuple[str, ...] = ()
    """The knobs whose combination it is about; the message shows those that were set."""

    def holds_in(self, version: Version) -> bool:
        """Whether the rule is in force in that version."""
        return self.since <= version and (self.until is None or version <= self.until)

    def words_in(self, version: Version) -> Words:
        """What that version says."""
        return next((words for words in reversed(self.words) if words.since <= version), self.words[0])


def to(**knobs: KnobValue) -> Callable[[Setting], Change]:
    """A change that does not depend on the setting: these knobs to these values."""
    return lambda _: knobs


def without(*names: str) -> Callable[[Setting], Change]:
    """A change that takes these knobs out."""
    return lambda _: dict.fromkeys(names)


def says(kind: Kind, text: str = "", since: Version = V9) -> tuple[Words, ...]:
    """The same words in every version."""
    return (Words(since, kind, text),)
