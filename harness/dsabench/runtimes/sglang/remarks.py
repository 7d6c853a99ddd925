"""What rendering a setting for a version has to say about it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Severity = Literal["error", "overwritten", "advisory"]


@dataclass(frozen=True, slots=True)
class Remark:
    """One setting that a version does not carry out as asked."""

    rule: str
    """Explained in docs/launch.md; FL ids are those of the rule set, where rendering is what notices them."""
    severity: Severity
    knob: str
    """Knob or variable."""
    message: str
    fix: str = ""
    """The nearest setting that works, where there is one."""

    def __str__(self) -> str:
        return f"{self.rule}: {self.knob}: {self.message}" + (f"; {self.fix}" if self.fix else "")
