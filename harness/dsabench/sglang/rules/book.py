"""All rules, family by family: what SGLang's own argument code cannot say."""

from __future__ import annotations

from dsabench.sglang.rules import hisparse, indexer, kernels, late_checks, memory, models, roles
from dsabench.sglang.rules.rule import Rule

FAMILIES: dict[str, tuple[Rule, ...]] = {
    "Models": models.RULES,
    "Memory": memory.RULES,
    "Attention kernels and the cache they read": kernels.RULES,
    "Kernels that check themselves": late_checks.RULES,
    "Indexer": indexer.RULES,
    "HiSparse": hisparse.RULES,
    "Roles, ranks and stages": roles.RULES,
}

RULES: tuple[Rule, ...] = tuple(rule for family in FAMILIES.values() for rule in family)
