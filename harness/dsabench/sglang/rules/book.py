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

BEYOND_ARGUMENTS = frozenset(
    (
        *("SL02", "SL03", "SL04", "SL08", "SL09", "SL10", "SL11", "SL12", "SL13", "SL14"),
        *("BE06", "BE07", "BE09", "BE10", "BE11", "BE12", "BE13", "BE14", "BE15", "BE16", "BE18", "BE19", "BE20"),
        *("BE22", "BE23", "BE24", "BE26", "KV03", "IX01", "IX03", "TK01", "MM01", "MH01", "CP18", "DT03", "FL09"),
        *("HS07", "HS08", "HS12", "HS13", "HS14", "HS18", "HS20", "HS21", "HS22", "HS23", "HS24"),
        *("PD06", "PD07", "PP01", "PP02", "PP03", "MP04", "MO08", "MO09", "MO24", "SP16"),
        *("MD01", "MD02", "MD03", "MD04"),
    )
)
"""What the argument code cannot say: it is checked when weights are loaded or at the first batch, or by nobody. All other
rules repeat what that code says, and are for where it cannot be asked."""
