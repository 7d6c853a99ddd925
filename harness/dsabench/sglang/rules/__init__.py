"""Known combinations of settings that the runtime refuses, replaces without a word, or runs untested.

`check` lists what is known against a spec.
"""

from __future__ import annotations

from dsabench.runtimes.plan import Severity
from dsabench.sglang.rules.book import FAMILIES, RULES
from dsabench.sglang.rules.check import check
from dsabench.sglang.rules.finding import Finding
from dsabench.sglang.rules.rule import Change, Rule

__all__ = ["FAMILIES", "RULES", "Change", "Finding", "Rule", "Severity", "check"]
