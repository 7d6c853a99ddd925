"""From flags, environment, tables and the machine to what really runs. Flag and environment win over table, that over
the built-in constant.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Literal

import torch

from dsabench.errors import InputError
from dsabench.model.tuned_table import ThresholdRule
from dsabench.reference import tables
from dsabench.reference.arguments import DecodeBackend, PrefillBackend, ServerArgs, Speculation, speculation_of
from dsabench.reference.batch import Path
from dsabench.reference.overrides import model_size
from dsabench.reference.sizes import VOCABULARY, ModelSize

MHA_VARIABLE = "SGLANG_DSA_PREFILL_DENSE_ATTN_KV_LEN_THRESHOLD"
ACCEPT_VARIABLE = "SGLANG_SIMULATE_ACC_LEN"
_MAX_RUNNING_SPECULATING = 48  # sglang's default wherever it speculates
_MHA_CAPACITY_TOKENS = 128 * 1024  # sglang 0.5.23 forward_batch_deepseek_mha_mixin.py:43
_SAYS = "These numbers describe the reference runtime of dsabench, a small model with random weights, and not sglang."


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything that decides how the server behaves; nothing is unset."""

    args: ServerArgs
    size: ModelSize
    device: str
    device_name: str
    dtype: torch.dtype
    kv_cache_dtype: Literal["bfloat16", "fp8_e4m3"]
    prefill_backend: PrefillBackend
    decode_backend: DecodeBackend
    mha_threshold_tokens: int
    mha_threshold_source: str
    auto_rule: tables.KernelRule
    auto_rule_source: str
    chunked_prefill_size: int | None
    """None sets no limit."""
    max_running_requests: int
    pages: int
    page_size: int
    context_length: int
    prefix_reuse: bool
    random_seed: int
    speculation: Speculation | None
    simulated_accept_length: float | None
    """Accept so many tokens per verification on average, whatever the model says."""

    @property
    def pool_tokens(self) -> int:
        """Tokens that fit into the KV pool."""
        return self.pages * self.page_size

    def pages_of(self, tokens: int) -> int:
        """Pages that a sequence of so many tokens needs."""
        return -(-tokens // self.page_size)

    def prefill_path(self, *, new_tokens: int, kv_tokens: int, longest: int) -> Path:
        """The kernel path of a prefill batch: Σ new tokens, Σ kv tokens, longest sequence, prefixes included.

        The order of decisions is that of sglang 0.5.23 dsa_backend.py:4039.
        """
        if longest <= self.mha_threshold_tokens and kv_tokens <= _MHA_CAPACITY_TOKENS:
            return "dense_mha"
        if self.prefill_backend != "flashmla_auto":
            return self.prefill_backend
        if self.kv_cache_dtype == "bfloat16":
            return "flashmla_sparse"
        return tables.choose(self.auto_rule, new_tokens=new_tokens, kv_tokens=kv_tokens)

    def snapshot(self) -> dict[str, object]:
        """The flags with all defaults resolved, under sglang's names, as `/server_info` shows them."""
        resolved = {
            "served_model_name": self.args.served_model_name or self.size.name,
            "dtype": str(self.dtype).removeprefix("torch."),
            "kv_cache_dtype": self.kv_cache_dtype,
            "dsa_prefill_backend": self.prefill_backend,
            "dsa_decode_backend": self.decode_backend,
            "max_running_requests": self.max_running_requests,
            "max_total_tokens": self.pool_tokens,
            "max_total_num_tokens": self.pool_tokens,
            "max_req_input_len": min(self.context_length, self.pool_tokens) - 1,
            "context_length": self.context_length,
            **(self.speculation.snapshot() if self.speculation else {}),
        }
        return {**asdict(self.args), **resolved}

    def reference_snapshot(self) -> dict[str, object]:
        """What sglang has no field for."""
        return {
            "note": _SAYS,
            "vocab_size": VOCABULARY,
            "index_topk": self.size.index_topk,
            "index_topk_pattern": self.size.index_topk_pattern,
            "heads_per_rank": self.size.heads,
            "device_name": self.device_name,
            "mha_threshold_tokens": self.mha_threshold_tokens,
            "mha_threshold_source": self.mha_threshold_source,
            "flashmla_auto_rule": tables.as_json(self.auto_rule),
            "flashmla_auto_rule_source": self.auto_rule_source,
        }


def resolve(args: ServerArgs, env: Mapping[str, str]) -> Settings:
    """Put a value in the place of everything that was not given.

    Raises:
        InputError: an environment variable, a table or the device is unusable.

    """
    if args.device == "cuda" and not torch.cuda.is_available():
        raise InputError("--device cuda: PyTorch finds no CUDA device here (allowed: cpu)")
    size = model_size(args.model_path, args.json_model_override_args)
    packed = args.kv_cache_dtype == "fp8_e4m3"
    kv_cache_dtype: Literal["bfloat16", "fp8_e4m3"] = "fp8_e4m3" if packed else "bfloat16"
    drafts = speculation_of(args)
    device_name = torch.cuda.get_device_name(0).replace(" ", "_") if args.device == "cuda" else "CPU"
    key = tables.TableKey(size.heads, size.index_topk, device_name, kv_cache_dtype)
    threshold, threshold_source = _mha_threshold(key, env)
    auto = tables.find("flashmla_auto", key, env)
    # sglang 0.5.23's defaults on Hopper, but for the plain cache's decode, where it has fa3
    backend: DecodeBackend = "flashmla_kv" if packed else "flashmla_sparse"
    # a table that somebody tuned makes the choice by it the default, as a patched sglang does
    is_tuned = packed and auto is not None and auto.table.evidence.label != "shipped"
    return Settings(
        args=args,
        size=size,
        device=args.device,
        device_name=device_name,
        dtype=_dtype(args),
        kv_cache_dtype=kv_cache_dtype,
        prefill_backend=args.dsa_prefill_backend or ("flashmla_auto" if is_tuned else backend),
        decode_backend=args.dsa_decode_backend or backend,
        mha_threshold_tokens=threshold,
        mha_threshold_source=threshold_source,
        auto_rule=tables.kernel_rule(auto),
        auto_rule_source=auto.source if auto else "built-in constant",
        chunked_prefill_size=None if args.chunked_prefill_size == -1 else args.chunked_prefill_size,
        max_running_requests=args.max_running_requests or (_MAX_RUNNING_SPECULATING if drafts else size.max_running),
        pages=(args.max_total_tokens or size.pool_tokens) // args.page_size,
        page_size=args.page_size,
        context_length=args.context_length or size.context,
        prefix_reuse=not args.disable_radix_cache,
        random_seed=args.random_seed,
        speculation=drafts,
        simulated_accept_length=_simulated_accept_length(env) if drafts else None,
    )


def _mha_threshold(key: tables.TableKey, env: Mapping[str, str]) -> tuple[int, str]:
    """The threshold in tokens and where it is from."""
    given = env.get(MHA_VARIABLE)
    if given is not None:
        if not given.isascii() or not given.isdigit():
            raise InputError(f"{MHA_VARIABLE}: {given!r} is not allowed (allowed: an integer, at least 0)")
        return int(given), MHA_VARIABLE
    found = tables.find("mha_threshold", key, env)
    if found is None:
        return key.index_topk, "index_topk"
    assert isinstance(found.table.rule, ThresholdRule), "the table's own check ties the form to the kind"
    return found.table.rule.max_tokens, found.source


def _simulated_accept_length(env: Mapping[str, str]) -> float | None:
    """None where it is not set or negative, as in sglang."""
    given = env.get(ACCEPT_VARIABLE, "-1")
    try:
        value = float(given)
    except ValueError as error:
        raise InputError(f"{ACCEPT_VARIABLE}: {given!r} is not allowed (allowed: a number of tokens)") from error
    if not math.isfinite(value):
        raise InputError(f"{ACCEPT_VARIABLE}: {given!r} is not allowed (allowed: a number of tokens)")
    return value if value > 0 else None


def _dtype(args: ServerArgs) -> torch.dtype:
    """`auto` is bfloat16 where the processor multiplies it natively; elsewhere float32 is several times as fast."""
    if args.dtype == "auto":
        capable = torch.cpu.get_capabilities()
        native = args.device == "cuda" or any(capable.get(name) for name in ("avx512_bf16", "amx_bf16", "bf16"))
        return torch.bfloat16 if native else torch.float32
    return torch.bfloat16 if args.dtype == "bfloat16" else torch.float32
