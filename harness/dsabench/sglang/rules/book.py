"""All rules, family by family."""

from __future__ import annotations

from dsabench.sglang.rules import (
    attention,
    backends,
    context_parallel,
    disaggregation,
    exchange,
    flags,
    hisparse,
    indexer,
    kernel_reads,
    kv,
    kv_sharding,
    launch_checks,
    models,
    moe,
    new_exchanges,
    new_experts,
    new_kernels,
    parallel,
    pool_reach,
    quantization,
    speculative,
)
from dsabench.sglang.rules.rule import Rule

FAMILIES: dict[str, tuple[Rule, ...]] = {
    "Models and memory": models.RULES,
    "KV cache": kv.RULES,
    "Indexer and dense prefill": indexer.RULES,
    "Attention kernels": backends.RULES,
    "Kernels and the cache they read": kernel_reads.RULES + pool_reach.RULES,
    "Attention backends": attention.RULES,
    "Late kernels": new_kernels.RULES,
    "Context parallelism": context_parallel.RULES,
    "Context parallelism, notes": context_parallel.NOTES,
    "Parallel sizes": parallel.RULES,
    "Last checks": launch_checks.RULES,
    "Experts": moe.RULES,
    "Number formats": quantization.RULES,
    "Late expert kernels": new_experts.RULES,
    "Exchange between experts": exchange.RULES,
    "Late exchanges": new_exchanges.RULES,
    "Speculative decoding": speculative.RULES,
    "HiSparse": hisparse.RULES,
    "HiSparse with something else": hisparse.COMBINED,
    "Disaggregation": disaggregation.RULES,
    "KV cache over the ranks": kv_sharding.RULES,
    "Flags and tools": flags.RULES,
}

RULES: tuple[Rule, ...] = tuple(rule for family in FAMILIES.values() for rule in family)
