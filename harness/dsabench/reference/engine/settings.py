"""Everything that decides how an engine behaves, and which kernel path a prefill takes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from dsabench.model.tuned_table import KernelRule, choose_auto
from dsabench.reference.engine.sizes import ModelSize

if TYPE_CHECKING:  # named in annotations only: whoever speaks HTTP need not load torch
    import torch

    from dsabench.reference.engine.batch import Path

PrefillBackend = Literal["flashmla_sparse", "flashmla_kv", "flashmla_auto", "triton"]
DecodeBackend = Literal["flashmla_sparse", "flashmla_kv", "triton"]
_MHA_CAPACITY_TOKENS = 128 * 1024  # sglang 0.5.23 forward_batch_deepseek_mha_mixin.py:43


@dataclass(frozen=True, slots=True)
class HiSparseConfig:
    """Keep the latent rows of a running request's hot tokens on the device, and all rows in host memory."""

    device_buffer_size: int
    """Tokens of one request whose rows are on the device."""
    host_to_device_ratio: int
    """Tokens that the host store and the indexer keys have room for, per token of the device's pool."""
    swap_in_block_size: int
    """Rows per copy from host to device."""


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """Everything that decides how the server behaves; nothing is unset."""

    size: ModelSize
    device: str
    device_name: str
    dtype: torch.dtype
    kv_cache_dtype: Literal["bfloat16", "fp8_e4m3"]
    prefill_backend: PrefillBackend
    decode_backend: DecodeBackend
    mha_threshold_tokens: int
    mha_threshold_source: str
    auto_rule: KernelRule
    auto_rule_source: str
    chunked_prefill_size: int | None
    """None sets no limit."""
    max_running_requests: int
    max_micro_batch_size: int
    """Of them, those that may run when it boots; `Scheduler.limit` changes it."""
    pages: int
    """Of indexer keys, and of rows where they are: without HiSparse on the device, with it in the host store."""
    device_pages: int
    """Of rows on the device."""
    page_size: int
    context_length: int
    prefix_reuse: bool
    random_seed: int
    threads: int
    """Of one rank's CPU operators."""
    hisparse: HiSparseConfig | None
    """None keeps all rows of running requests on the device."""
    draft_steps: int | None
    """Tokens guessed before each verification, a chain of them; None without speculation."""
    simulated_accept_length: float | None
    """Accept so many tokens per verification on average, whatever the model says."""

    @property
    def pool_tokens(self) -> int:
        """Tokens that fit into the KV pool, the host's part included."""
        return self.pages * self.page_size

    @property
    def device_tokens(self) -> int:
        """Tokens whose rows fit on the device: no prompt can be longer."""
        return self.device_pages * self.page_size

    def prefill_path(self, *, new_tokens: int, kv_tokens: int, longest: int) -> Path:
        """The kernel path of a prefill batch: Σ new tokens, Σ kv tokens, longest sequence, prefixes included.

        The order of decisions is that of sglang 0.5.23 dsa_backend.py:4039.
        """
        if longest <= self.mha_threshold_tokens and kv_tokens <= _MHA_CAPACITY_TOKENS:
            return "dense_mha"
        if self.prefill_backend != "flashmla_auto":
            return self.prefill_backend
        return choose_auto(self.auto_rule, self.kv_cache_dtype, new_tokens=new_tokens, kv_tokens=kv_tokens)
