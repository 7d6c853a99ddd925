"""What the rules found in a spec."""

from __future__ import annotations

from dsabench.model.topology import RoleName
from dsabench.model.value import FrozenMap, KnobValue, Value
from dsabench.runtimes.plan import Severity
from dsabench.sglang.rules.rule import Kind


class Finding(Value):
    """One rule that a role of a spec breaks."""

    rule: str
    """Id of the rule, as in docs/sglang-rules.md."""
    severity: Severity
    role: RoleName
    message: str
    """One line: the combination and the settings that make it."""
    kind: Kind
    """How the runtime would have said it."""
    says: str
    """The runtime's words, or what it would have done without a word; empty for an assertion without a message."""
    fix: str
    """The nearest setting that works, in words."""
    change: FrozenMap[KnobValue | None]
    """The same as knobs; None takes the knob out. Empty where knobs alone do not help."""

    def __str__(self) -> str:
        who = {"document": "its documents", "log": "the runtime logs", "silent": "the runtime"}.get(self.kind)
        error = f"{self.kind}{': ' if self.says else ''}{self.says}"
        said = f"the runtime: {error}" if who is None else f"{who}: {self.says}"
        return f"{self.rule}: {self.message} ({said}); {self.fix}".replace("\n", " ")
