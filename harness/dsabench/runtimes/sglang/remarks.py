"""What rendering a setting for a version has to say about it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Severity = Literal["error", "overwritten", "advisory"]

REMARKS = {
    "FL03": "HiSparse is not in this version",
    "FL04": "the value is not one of the flag's choices",
    "VS01": "the version has no such setting",
    "VS02": "the version ignores the setting without a word",
    "VS03": "the version accepts the flag and does nothing",
    "VS04": "the version does not read the variable",
    "VS05": "the text is not a JSON object",
    "VS06": "two settings contradict each other",
    "VS07": "the setting has no effect without another one",
}
"""What each id stands for. FL ids are those of the rule set, where rendering is what notices them."""


@dataclass(frozen=True, slots=True)
class Remark:
    """One setting that a version does not carry out as asked."""

    rule: str
    severity: Severity
    knob: str
    """Knob or variable."""
    message: str
    fix: str = ""
    """The nearest setting that works, where there is one."""

    def __str__(self) -> str:
        return f"{self.rule}: {self.knob}: {self.message}" + (f"; {self.fix}" if self.fix else "")
