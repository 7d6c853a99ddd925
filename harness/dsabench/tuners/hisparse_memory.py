"""The arithmetic of HiSparse: how many tokens the device pool of a full rank has (or of the reference runtime), what that leaves of
requests, and what it takes of host memory. Formulas: sglang 0.5.16 and 0.5.23, kv_cache_configurator.py and
hisparse_coordinator.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from dsabench.errors import InputError
from dsabench.reference.engine.sizes import ModelSize
from dsabench.sglang.memory_forecast import GIB, checkpoint_bytes
from dsabench.sglang.models import Widths
from dsabench.sglang.rules.kernels import BF16_ROW, INDEX_ROW, PACKED_ROW

PAGE = 64
KV_BYTES = {"bfloat16": BF16_ROW, "fp8_e4m3": PACKED_ROW}
"""Of a token and layer. The indexer's pool, `INDEX_ROW` of each, spans the logical tokens, host's included."""


class DevicePool(Protocol):
    """The memory of a device for the KV cache."""

    @property
    def kv_bytes(self) -> Mapping[str, int]:
        """KV dtype → bytes of a token and layer."""

    def pool_tokens(self, kv_bytes: int, ratio: int) -> int:
        """S: tokens of the device pool, whole pages; per token KV and, for each logical token, the indexer's key."""

    def describe(self, kv_bytes: int, ratio: int) -> str:
        """The pool's arithmetic in one line."""


@dataclass(frozen=True, slots=True)
class ReferencePool:
    """What the reference runtime's rows and keys take in tokens of bfloat16 with HiSparse off; every setting has as many bytes."""

    size: ModelSize
    tokens: int

    @property
    def kv_bytes(self) -> Mapping[str, int]:
        """Of a token and layer."""
        return {"bfloat16": 2 * self.size.row, "fp8_e4m3": self.size.packed_row_bytes}

    @property
    def _key_bytes(self) -> int:
        return 2 * self.size.index_dim

    @property
    def _bytes(self) -> int:
        """Of a layer."""
        return self.tokens * (self.kv_bytes["bfloat16"] + self._key_bytes)

    def pool_tokens(self, kv_bytes: int, ratio: int) -> int:
        """S."""
        return self._bytes // (kv_bytes + self._key_bytes * ratio) // PAGE * PAGE

    def describe(self, kv_bytes: int, ratio: int) -> str:
        """The pool's arithmetic in one line."""
        return (
            f"{self._bytes:,} B a layer (max_total_tokens {self.tokens:,}) ÷ ({kv_bytes} + {self._key_bytes} × {ratio}) B a token = "
            f"{self.pool_tokens(kv_bytes, ratio):,} tokens in the device pool"
        )


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
    def kv_bytes(self) -> Mapping[str, int]:
        """DeepSeek's."""
        return KV_BYTES

    @property
    def weight_bytes(self) -> int:
        """Of the checkpoint."""
        return checkpoint_bytes(self.widths, self.attention_ranks, self.expert_ranks)

    def pool_tokens(self, kv_bytes: int, ratio: int) -> int:
        """S: tokens of the device pool, whole pages; per token KV and, for each logical token, the indexer's key."""
        left = int(self.memory_gib * GIB * self.static_share) - self.weight_bytes
        return max(0, left // (self.widths.layers * (kv_bytes + INDEX_ROW * ratio))) // PAGE * PAGE

    def describe(self, kv_bytes: int, ratio: int) -> str:
        """The pool's arithmetic in one line."""
        layers, share, weights = self.widths.layers, self.static_share, self.weight_bytes / GIB
        return (
            f"full rank of {layers} layers: {self.memory_gib:g} GiB × {share:g} − {weights:.1f} GiB of weights = "
            f"{self.memory_gib * share - weights:.1f} GiB; ÷ ({layers} × ({kv_bytes} + {INDEX_ROW} × {ratio})) "
            f"B a token = {self.pool_tokens(kv_bytes, ratio):,} tokens in the device pool"
        )


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
            f"× {self.layers} layers = {_in_words(self.host_bytes)}{held}"
        )

    def why_not(self, index_topk: int, host_bytes: float, requests: int) -> str | None:
        """Why it cannot run, None where it can. `requests` is what the load keeps in flight."""
        if self.device_buffer_size < index_topk:
            return f"the buffer is smaller than index_topk={index_topk}"
        if self.host_bytes > host_bytes:
            return f"takes {_in_words(self.host_bytes)} of host memory, {_in_words(host_bytes)} are free"
        if self.live_requests < requests:
            return f"{self.live_requests} requests fit, the load keeps {requests} in flight"
        return None


def _in_words(count: float) -> str:
    """Bytes."""
    return f"{count / GIB:.1f} GiB" if count >= GIB / 10 else f"{count / 2**20:.1f} MiB"


def require_pool(pool: DevicePool, kv_bytes: int, ratio: int) -> int:
    """S.

    Raises:
        InputError: nothing is left beside the weights; with the arithmetic.

    """
    tokens = pool.pool_tokens(kv_bytes, ratio)
    if tokens < PAGE:
        raise InputError(f"no KV pool is left: {pool.describe(kv_bytes, ratio)}")
    return tokens
