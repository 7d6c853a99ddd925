"""From flags, environment, tables and the machine to what really runs, and what servers say of it.

Flag and environment win over table, that over the built-in constant.
"""

from __future__ import annotations

import importlib.util
import json
import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import Literal

import torch

from dsabench.errors import InputError
from dsabench.model.tuned_table import ThresholdRule
from dsabench.reference.engine.settings import DecodeBackend, EngineSettings
from dsabench.reference.engine.sizes import SIZES, VOCABULARY, ModelSize
from dsabench.reference.server import tables
from dsabench.reference.server.arguments import ServerArgs, draft_steps_of, hisparse_of, model_size

MHA_VARIABLE = "SGLANG_DSA_PREFILL_DENSE_ATTN_KV_LEN_THRESHOLD"
ACCEPT_VARIABLE = "SGLANG_SIMULATE_ACC_LEN"
_MAX_RUNNING_SPECULATING = 48  # sglang's default wherever it speculates
_SAYS = "These numbers describe the reference runtime of dsabench, a small model with {weights}, and not sglang."
_INTERPRETER = "TRITON_INTERPRET"
_LEAST_COLUMNS = 16
"""Of the smallest matrix product that a Triton kernel makes; attention has the latent in four groups of columns."""


def device_of(args: ServerArgs) -> Literal["cpu", "cuda"]:
    """The device of all ranks, each of which has one GPU to itself.

    Raises:
        InputError: there is no GPU, or fewer than ranks.

    """
    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if args.device == "cpu" or (args.device == "auto" and gpus == 0):
        return "cpu"
    if gpus == 0:
        raise InputError("--device cuda: PyTorch finds no CUDA device here (allowed: cpu)")
    ranks = len(args.ranks_here)
    if ranks > gpus:
        raise InputError(f"--device {args.device}: {ranks} ranks need a GPU each, and there are {gpus} (allowed: cpu)")
    return "cuda"


def check_triton(size: ModelSize, device: str, env: Mapping[str, str]) -> None:
    """Refuse the backend where its kernels cannot run.

    Raises:
        InputError: no GPU and no interpreter, no Triton, or a latent that is too narrow for a matrix product.

    """
    flags = "--dsa-prefill-backend or --dsa-decode-backend triton"
    interpreted = env.get(_INTERPRETER) == "1"
    if device == "cpu" and not interpreted:
        raise InputError(f"{flags} needs --device cuda (or {_INTERPRETER}=1, which is slow and for tests)")
    if importlib.util.find_spec("triton") is None:
        raise InputError(f"{flags}: the package triton is not installed (allowed: flashmla_sparse, flashmla_kv)")
    if size.latent // 4 < _LEAST_COLUMNS:
        wide = ", ".join(name for name, one in SIZES.items() if one.latent // 4 >= _LEAST_COLUMNS)
        raise InputError(f"{flags}: the latent of {size.name}, {size.latent}, is too narrow (allowed: {wide})")


def resolve(args: ServerArgs, env: Mapping[str, str]) -> EngineSettings:
    """Put a value in the place of everything that was not given.

    Raises:
        InputError: an environment variable, a table or the device is unusable.

    """
    device = device_of(args)
    size = model_size(args.model_path, args.json_model_override_args)
    if "triton" in (args.dsa_prefill_backend, args.dsa_decode_backend):
        check_triton(size, device, env)
    packed = args.kv_cache_dtype == "fp8_e4m3"
    kv_cache_dtype: Literal["bfloat16", "fp8_e4m3"] = "fp8_e4m3" if packed else "bfloat16"
    drafts = draft_steps_of(args)
    hot = hisparse_of(args)
    running = _max_running(args, size, speculating=drafts is not None)
    pages = (args.max_total_tokens or size.pool_tokens) // args.page_size
    device_name = torch.cuda.get_device_name(0).replace(" ", "_") if device == "cuda" else "CPU"
    key = tables.TableKey(_heads_per_rank(args, size), size.index_topk, device_name, kv_cache_dtype)
    threshold, threshold_source = _mha_threshold(key, env)
    auto = tables.find("flashmla_auto", key, env)
    # sglang 0.5.23's defaults on Hopper, but for the plain cache's decode, where it has fa3
    backend: DecodeBackend = "flashmla_kv" if packed else "flashmla_sparse"
    # a table that somebody tuned makes the choice by it the default, as a patched sglang does
    is_tuned = packed and auto is not None and auto.table.evidence.label != "shipped"
    return EngineSettings(
        size=size,
        device=device,
        device_name=device_name,
        dtype=_dtype(args.dtype, device),
        kv_cache_dtype=kv_cache_dtype,
        prefill_backend=args.dsa_prefill_backend or ("flashmla_auto" if is_tuned else backend),
        decode_backend=args.dsa_decode_backend or backend,
        mha_threshold_tokens=threshold,
        mha_threshold_source=threshold_source,
        auto_rule=tables.kernel_rule(auto),
        auto_rule_source=auto.source if auto else "built-in constant",
        chunked_prefill_size=None if args.chunked_prefill_size == -1 else args.chunked_prefill_size,
        max_running_requests=running,
        max_micro_batch_size=min(args.pp_max_micro_batch_size or running, running),
        pages=pages * (1 if hot is None else hot.host_to_device_ratio),
        device_pages=pages,
        page_size=args.page_size,
        context_length=args.context_length or size.context,
        prefix_reuse=not args.disable_radix_cache,
        random_seed=args.random_seed,
        threads=max(1, args.cpu_threads // len(args.ranks_here)),
        hisparse=hot,
        draft_steps=drafts,
        simulated_accept_length=_simulated_accept_length(env) if drafts else None,
    )


def _heads_per_rank(args: ServerArgs, size: ModelSize) -> int:
    return size.heads // args.parallel.seat(0).heads.of


def _max_running(args: ServerArgs, size: ModelSize, *, speculating: bool) -> int:
    """Of one scheduler: with DP attention the groups share what is asked for, replicas have it each, as in sglang."""
    wanted = args.max_running_requests or (_MAX_RUNNING_SPECULATING if speculating else size.max_running)
    return max(1, wanted // args.parallel.groups)


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


def _dtype(wanted: str, device: str) -> torch.dtype:
    """`auto` is bfloat16 where the processor multiplies it natively; elsewhere float32 is several times as fast."""
    if wanted == "auto":
        capable = torch.cpu.get_capabilities()
        native = device == "cuda" or any(capable.get(name) for name in ("avx512_bf16", "amx_bf16", "bf16"))
        return torch.bfloat16 if native else torch.float32
    return torch.bfloat16 if wanted == "bfloat16" else torch.float32


def as_sglang(args: ServerArgs, settings: EngineSettings) -> dict[str, object]:
    """The flags with all defaults resolved, under sglang's names, as `/server_info` shows them."""
    resolved = {
        "device": settings.device,
        "served_model_name": args.served_model_name or settings.size.name,
        "load_format": "safetensors" if settings.size.is_trained else "dummy",
        "dtype": str(settings.dtype).removeprefix("torch."),
        "kv_cache_dtype": settings.kv_cache_dtype,
        "dsa_prefill_backend": settings.prefill_backend,
        "dsa_decode_backend": settings.decode_backend,
        "max_running_requests": settings.max_running_requests,
        "pp_max_micro_batch_size": settings.max_micro_batch_size,
        "max_total_tokens": settings.device_tokens,
        "max_total_num_tokens": settings.pool_tokens,
        "max_req_input_len": min(settings.context_length, settings.device_tokens) - 1,
        "context_length": settings.context_length,
        **(_speculation(settings.draft_steps) if settings.draft_steps else {}),
    }
    return {**asdict(args), **resolved}


def as_reference(args: ServerArgs, settings: EngineSettings) -> dict[str, object]:
    """What sglang has no field for."""
    return {
        "note": _SAYS.format(weights="weights of its own" if settings.size.is_trained else "random weights"),
        "vocab_size": VOCABULARY,
        "index_topk": settings.size.index_topk,
        "index_topk_pattern": settings.size.index_topk_pattern,
        "hisparse": asdict(settings.hisparse) if settings.hisparse else None,
        "heads_per_rank": _heads_per_rank(args, settings.size),
        "device_name": settings.device_name,
        "mha_threshold_tokens": settings.mha_threshold_tokens,
        "mha_threshold_source": settings.mha_threshold_source,
        "flashmla_auto_rule": json.loads(settings.auto_rule.model_dump_json()),
        "flashmla_auto_rule_source": settings.auto_rule_source,
    }


def _speculation(steps: int) -> dict[str, object]:
    """Under sglang's names. The verified tokens are the drafts and the one before them."""
    return {
        "speculative_algorithm": "EAGLE",
        "speculative_num_steps": steps,
        "speculative_eagle_topk": 1,
        "speculative_num_draft_tokens": steps + 1,
    }
