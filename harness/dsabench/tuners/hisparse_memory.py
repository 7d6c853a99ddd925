"""The arithmetic of HiSparse: how many tokens the device pool of a full rank has, what that leaves of requests, and what
it takes of host memory. Formulas: sglang 0.5.16 and 0.5.23, kv_cache_configurator.py and hisparse_coordinator.py.
"""

from __future__ import annotations

from dataclasses import dataclass

from dsabench.errors import InputError
from dsabench.sglang.models import Widths

GIB = 2**30
PAGE = 64
INDEXER_BYTES = 132
"""Of a token and layer, fp8 key and scale; the indexer's pool spans the logical tokens, host's included."""
KV_BYTES = {"bfloat16": 1152, "fp8_e4m3": 656}
"""Of a token and layer: 576 values of two bytes, or a packed row."""


@dataclass(frozen=True, slots=True)
class Rank:
    """One rank of the deployment that a study stands for."""

    widths: Widths
    attention_ranks: int
    """Ranks that share the heads."""
    expert_ranks: int
    """Ranks that share the experts."""
    memory_gib: float
    static_share: float
    """mem_fraction_static: weights and pools."""

    @property
    def weight_bytes(self) -> int:
        """fp8 weights, one byte each: experts shared by the expert ranks, attention by its own, the rest whole (bf16)."""
        w = self.widths
        experts = (w.layers - w.dense_layers) * w.experts * 3 * w.hidden * w.moe_intermediate
        shared = (w.layers - w.dense_layers) * 3 * w.hidden * w.moe_intermediate
        dense = w.dense_layers * 3 * w.hidden * w.intermediate
        heads = w.q_lora_rank * (w.qk_nope_head_dim + w.qk_rope_head_dim) + w.v_head_dim * w.hidden
        heads += w.kv_lora_rank * (w.qk_nope_head_dim + w.v_head_dim)
        common = w.hidden * (w.q_lora_rank + w.kv_lora_rank + w.qk_rope_head_dim)
        common += w.index_heads * w.index_head_dim * w.q_lora_rank + w.hidden * w.index_head_dim
        attention = w.layers * (w.heads * heads // self.attention_ranks + common)
        embeddings = 2 * 2 * w.vocabulary * w.hidden
        return experts // self.expert_ranks + shared + dense + attention + embeddings

    def pool_tokens(self, kv_bytes: int, ratio: int) -> int:
        """S: tokens of the device pool, whole pages; per token KV and, for each logical token, the indexer's key."""
        left = int(self.memory_gib * GIB * self.static_share) - self.weight_bytes
        return max(0, left // (self.widths.layers * (kv_bytes + INDEXER_BYTES * ratio))) // PAGE * PAGE


@dataclass(frozen=True, slots=True)
class Demand:
    """What one setting asks of a rank of the study."""

    device_buffer_size: int
    ratio: int
    kv_bytes: int
    pool_tokens: int
    """S."""
    layers: int
    """Of the model that is served here: a slice has fewer."""
    request_tokens: int | None = None
    """The longest request of the load, prompt and answer; None where a dataset decides it."""

    @property
    def live_requests(self) -> int:
        """Requests that have a device buffer at once: S // (buffer + one page)."""
        return self.pool_tokens // (self.device_buffer_size + PAGE)

    @property
    def held_requests(self) -> int | None:
        """Requests whose tokens are in host memory at once; others wait, so it is no reason not to run. Seen in the logs of
        results/h200/hisparse.
        """
        return None if self.request_tokens is None else self.pool_tokens * self.ratio // self.request_tokens

    @property
    def host_bytes(self) -> int:
        """Pinned host memory of the rank."""
        return -(-self.pool_tokens * self.ratio // PAGE) * PAGE * self.kv_bytes * self.layers

    def line(self) -> str:
        """The arithmetic, for people."""
        held = (
            "" if self.request_tokens is None else f", {self.held_requests} requests of {self.request_tokens:,} tokens"
        )
        return (
            f"buffer {self.device_buffer_size}, ratio {self.ratio}: {self.pool_tokens:,} // ({self.device_buffer_size} + "
            f"{PAGE}) = {self.live_requests} requests; host {self.pool_tokens:,} × {self.ratio} tokens × {self.kv_bytes} B "
            f"× {self.layers} layers = {self.host_bytes / GIB:.1f} GiB{held}"
        )

    def why_not(self, index_topk: int, host_bytes: float, requests: int) -> str | None:
        """Why it cannot run, None where it can. `requests` is what the load keeps in flight."""
        if self.device_buffer_size < index_topk:
            return f"the buffer is smaller than index_topk={index_topk}"
        if self.host_bytes > host_bytes:
            return f"takes {self.host_bytes / GIB:.1f} GiB of host memory, {host_bytes / GIB:.1f} GiB are free"
        if self.live_requests < requests:
            return f"{self.live_requests} requests fit, the load keeps {requests} in flight"
        return None


def describe(rank: Rank, kv_bytes: int, ratio: int) -> str:
    """The pool's arithmetic in one line."""
    layers, share = rank.widths.layers, rank.static_share
    return (
        f"full rank of {layers} layers: {rank.memory_gib:g} GiB × {share:g} − {rank.weight_bytes / GIB:.1f} GiB of weights = "
        f"{rank.memory_gib * share - rank.weight_bytes / GIB:.1f} GiB; ÷ ({layers} × ({kv_bytes} + {INDEXER_BYTES} × {ratio})) "
        f"B a token = {rank.pool_tokens(kv_bytes, ratio):,} tokens in the device pool"
    )


def require_pool(rank: Rank, kv_bytes: int, ratio: int) -> int:
    """S.

    Raises:
        InputError: nothing is left beside the weights; with the arithmetic.

    """
    tokens = rank.pool_tokens(kv_bytes, ratio)
    if tokens < PAGE:
        raise InputError(f"no KV pool is left: {describe(rank, kv_bytes, ratio)}")
    return tokens
