"""A spec's role → `Setting`: the runtime's own defaults and forced values, per version and accelerator.

Follows 0.5.9 srt/server_args.py:1119-1290 and 2076-2190, 0.5.16 srt/arg_groups/overrides.py:312-400 and 1210-1310,
0.5.23 srt/arg_groups/overrides.py:500-742 and srt/arg_groups/model_overrides/deepseek_v2.py:80-180.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from pydantic import JsonValue

from dsabench.errors import InputError
from dsabench.model.hardware import Accelerator
from dsabench.model.runtime import RuntimeSpec
from dsabench.model.topology import Role
from dsabench.model.value import KnobValue
from dsabench.sglang.model_config import config_json, overrides_of, weights_gib, weights_of
from dsabench.sglang.models import Widths, find_model, widths_of
from dsabench.sglang.rules.setting import Facts, HiSparse, Kernels, Parallel, Setting, Speculation
from dsabench.sglang.versions import Version

KvDtype = Literal["bfloat16", "fp8_e4m3"]


def kv_auto(device: Accelerator) -> KvDtype:
    """What `kv_cache_dtype: auto` becomes for a DSA model (0.5.23 srt/arg_groups/overrides.py:530)."""
    return "fp8_e4m3" if device.capability is not None and device.capability[0] >= 10 else "bfloat16"


@dataclass(frozen=True, slots=True)
class DefaultKernels:
    """What runs when neither backend is set, from a version on."""

    since: Version
    prefill: str
    decode: str
    forced: bool = False
    """True where the runtime overwrites what the user set, without an error."""


_V9, _V10, _V11, _V20 = (Version(0, 5, patch) for patch in (9, 10, 11, 20))

_HOPPER_BF16 = (DefaultKernels(_V9, "flashmla_sparse", "fa3"),)
_BLACKWELL_BF16 = (DefaultKernels(_V9, "flashmla_sparse", "trtllm"),)
_HOPPER_FP8 = (
    DefaultKernels(_V9, "flashmla_auto", "flashmla_kv"),
    DefaultKernels(_V11, "flashmla_kv", "flashmla_kv"),
)
_BLACKWELL_FP8 = (
    DefaultKernels(_V9, "flashmla_auto", "flashmla_kv"),
    DefaultKernels(_V10, "trtllm", "trtllm", forced=True),
    DefaultKernels(_V11, "trtllm", "trtllm"),
)
# 0.5.9 has no branch for ROCm and takes Hopper's kernels, which cannot run there: none is listed.
_ROCM = (DefaultKernels(_V10, "tilelang", "tilelang"), DefaultKernels(_V20, "triton", "triton"))


def default_kernels(device: Accelerator, kv_cache_dtype: str, version: Version) -> DefaultKernels | None:
    """The kernels taken for a DSA model when none are set; None where there is no usable default (NPU; ROCm in 0.5.9).

    Source: srt/server_args.py (0.5.9:1154, 0.5.10:1445, 0.5.13:1756), srt/arg_groups/overrides.py (0.5.23:601).
    """
    dtype = kv_auto(device) if kv_cache_dtype == "auto" else kv_cache_dtype
    if device.platform == "rocm":
        rows: tuple[DefaultKernels, ...] = _ROCM
    elif device.sm_major is None:
        rows = ()
    elif device.sm_major >= 10:
        rows = _BLACKWELL_FP8 if dtype == "fp8_e4m3" else _BLACKWELL_BF16
    else:
        rows = _HOPPER_FP8 if dtype == "fp8_e4m3" else _HOPPER_BF16
    return next((row for row in reversed(rows) if row.since <= version), None)


Knobs = Mapping[str, KnobValue]

SPANNING = frozenset(
    {
        *("deepep", "deepep_v2", "mooncake", "nixl", "ascend_fuseep", "flashinfer", "mori", "megamoe"),
        *("flashinfer_megamoe", "pplx"),
    }
)
"""Exchanges that set ep_size to tp_size (0.5.23 srt/arg_groups/overrides.py:1578)."""

_UNKNOWN: Mapping[str, JsonValue] = {
    "architectures": ["DeepseekV32ForCausalLM"],
    "index_topk": 2048,
    "index_head_dim": 128,
    "kv_lora_rank": 512,
}
"""What is assumed of a model whose config.json is not known: one like DeepSeek-V3.2, of unknown size (MR02 says so)."""

_QUANTIZATION = {"fp8": "fp8", "nvfp4": "modelopt_fp4", "mxfp4": "quark"}


def resolve(spec: RuntimeSpec, role: Role, version: Version, device: Accelerator | None) -> Setting:
    """What the runtime makes of this role. Never raises; what cannot be known stays None."""
    knobs: Knobs = {**spec.knobs, **role.knobs}
    model = _facts(spec.model, knobs)
    hisparse = _hisparse(knobs)
    parallel = _parallel(knobs, model, version, device)
    speculation = _speculation(knobs, version, split=parallel.dp_attention)
    kernels = _kernels(knobs, model, parallel, version, device)
    keeps_prefixes = knobs.get("prefix_cache") is not False
    if role.role == "decode":
        keeps_prefixes = knobs.get("decode_prefix_cache") is True and version >= (0, 5, 11)
    return Setting(
        version=version,
        device=device,
        role=role.role,
        knobs=knobs,
        model=model,
        parallel=parallel,
        kernels=kernels,
        speculation=speculation,
        hisparse=hisparse,
        prefix_cache=keeps_prefixes,
        mixed_chunk=knobs.get("mixed_chunk") is True and not _drops_mixed_chunk(speculation, version),
    )


def _drops_mixed_chunk(speculation: Speculation, version: Version) -> bool:
    """Up to 0.5.18 every speculation does; later EAGLE keeps it (0.5.19 srt/speculative/spec_info.py:132)."""
    kept = {None} if version < (0, 5, 19) else {None, "EAGLE", "EAGLE3"}
    return speculation.algorithm not in kept


def _facts(path: str, knobs: Knobs) -> Facts:
    known, own, given = find_model(path), config_json(path), overrides_of(knobs)
    said = {**_UNKNOWN, **given} if own is None else {**own, **given}

    def whole(name: str) -> int | None:
        value = said.get(name)
        return int(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None

    architectures = said.get("architectures")
    named = architectures[0] if isinstance(architectures, list) and architectures else None
    pattern = knobs.get("index_topk_pattern", said.get("index_topk_pattern"))
    resized = {"num_hidden_layers", "n_routed_experts", "hidden_size", "moe_intermediate_size"} & given.keys()
    return Facts(
        name=known.name if known else None,
        architecture=named if isinstance(named, str) else "",
        layers=whole("num_hidden_layers"),
        heads=whole("num_attention_heads"),
        index_topk=whole("index_topk"),
        index_head_dim=whole("index_head_dim") or 0,
        kv_lora_rank=whole("kv_lora_rank") or 0,
        learnable_sink=bool(said.get("learnable_sink")),
        index_topk_freq=whole("index_topk_freq") or 1,
        index_topk_pattern=pattern if isinstance(pattern, str) else None,
        shares_with_offset="index_skip_topk_offset" in said,
        weights=None if own is None else weights_of(said),
        weights_gib=None if resized else weights_gib(path),
        widths=None if own is None else _widths({**own, **given}),
    )


def _widths(config: Mapping[str, JsonValue]) -> Widths | None:
    try:
        return widths_of(config)
    except (InputError, TypeError):  # a width is missing, or no number
        return None


def _size(knobs: Knobs, name: str) -> int:
    value = knobs.get(name, 1)
    return max(int(value), 1) if isinstance(value, (int, float)) else 1


def _word(knobs: Knobs, name: str) -> str | None:
    value = knobs.get(name)
    return value if isinstance(value, str) else None


def _parallel(knobs: Knobs, model: Facts, version: Version, device: Accelerator | None) -> Parallel:
    tp, dp = _size(knobs, "tp_size"), _size(knobs, "dp_size")
    cp = knobs.get("prefill_cp") is True and model.is_dsa
    mode = _word(knobs, "cp_mode") or ("interleave" if version < (0, 5, 14) else None)
    zigzag = cp and mode == "zigzag"
    a2a = "deepep" if zigzag else _exchange(knobs, version)
    # Context parallelism switches the splitting of the attention on; one group switches it off again.
    split = dp > 1 and (knobs.get("dp_attention") is True or cp)
    attn_cp = _size(knobs, "attn_cp_size")
    keeps_width = version < (0, 5, 10) or (version >= (0, 5, 22) and mode == "interleave" and attn_cp > 1)
    if cp and not keeps_width:
        attn_cp = max(tp // dp, 1)
    quantization = _word(knobs, "quantization")
    if quantization == "unquant":
        quantization = None  # an unquantised checkpoint is; another runs as it says
    elif quantization is None and device is not None and device.sm_major == 10 and model.weights is not None:
        quantization = _QUANTIZATION.get(model.weights)
    return Parallel(
        tp=tp,
        dp=dp,
        dp_attention=split,
        ep=tp if a2a in SPANNING else _size(knobs, "ep_size"),
        pp=_size(knobs, "pp_size"),
        cp=cp,
        cp_mode=mode,
        attn_cp=attn_cp,
        moe_dp=_size(knobs, "moe_dp_size"),
        dcp=_size(knobs, "dcp_size"),
        a2a=a2a,
        runner="auto" if is_megamoe(knobs, version) else _word(knobs, "moe_runner_backend") or "auto",
        quantization=quantization,
    )


def is_megamoe(knobs: Knobs, version: Version) -> bool:
    """Whether the expert kernels asked for are another name of an exchange (0.5.18 srt/server_args.py:3790)."""
    return version >= (0, 5, 18) and knobs.get("moe_runner_backend") == "megamoe"


def _exchange(knobs: Knobs, version: Version) -> str:
    if is_megamoe(knobs, version):
        return "megamoe"
    asked = _word(knobs, "moe_a2a_backend") or "none"
    return "none" if asked == "ascend_tp" else asked


def _kernels(knobs: Knobs, model: Facts, parallel: Parallel, version: Version, device: Accelerator | None) -> Kernels:
    kv: str | None = _word(knobs, "kv_cache_dtype") or "auto"
    if version < (0, 5, 10) and parallel.cp and parallel.cp_mode == "zigzag":
        kv = "bfloat16"
    if kv == "auto":
        sink = model.learnable_sink and version >= (0, 5, 20)
        kv = "bfloat16" if sink else (kv_auto(device) if device else None)
    prefill, decode = _word(knobs, "prefill_backend"), _word(knobs, "decode_backend")
    forced = False
    if device is not None and kv is not None:
        default = _defaults(model, _hisparse(knobs), version, device, kv, one_set=(prefill is None) != (decode is None))
        if parallel.dcp > 1 and version >= (0, 5, 22):
            default = ("trtllm", "trtllm", False)
        forced = default[2]
        prefill = default[0] if forced or prefill is None else prefill
        decode = default[1] if forced or decode is None else decode
    asked = _word(knobs, "attention_backend")
    return Kernels(
        attention=asked or ("dsa" if model.is_dsa else "other"),
        kv=kv,
        prefill=prefill,
        decode=decode,
        page=_page(model, version, device) or (None if device is None else _size(knobs, "page_size")),
    )


def _defaults(
    model: Facts, hisparse: HiSparse, version: Version, device: Accelerator, kv: str, *, one_set: bool
) -> tuple[str | None, str | None, bool]:
    """Prefill, decode, and whether they replace what was asked."""
    if model.learnable_sink and version >= (0, 5, 20):
        return "flashmla_sparse", "flashmla_sparse", False
    if version >= (0, 5, 17) and model.is_glm and device.sm_major == 12 and kv == "fp8_e4m3":
        return "flashinfer_sparse_mla", "flashinfer_sparse_mla", False
    if hisparse.on and version >= (0, 5, 10):
        kernel = "flashmla_kv" if kv == "fp8_e4m3" and version >= (0, 5, 12) else "flashmla_sparse"
        if device.platform == "rocm" and version >= (0, 5, 14):
            kernel = "tilelang"
        return kernel, kernel, False
    if device.platform == "rocm" and (version < (0, 5, 10) or (one_set and version < (0, 5, 20))):
        # The runtime falls through to its CUDA rows, by the capability that ROCm reports.
        if kv == "fp8_e4m3":
            return ("flashmla_auto" if version < (0, 5, 11) else "flashmla_kv"), "flashmla_kv", False
        return "flashmla_sparse", "fa3", False
    row = default_kernels(device, kv, version)
    return (row.prefill, row.decode, row.forced) if row else (None, None, False)


def _page(model: Facts, version: Version, device: Accelerator | None) -> int | None:
    if device is None or not model.is_dsa:
        return None
    if device.platform == "cuda":
        return 64
    if device.platform == "rocm":
        return 1 if version < (0, 5, 12) else 64
    return None


def _speculation(knobs: Knobs, version: Version, *, split: bool) -> Speculation:
    algorithm = _word(knobs, "speculative_algorithm")
    algorithm = "EAGLE" if algorithm == "NEXTN" else algorithm
    names = ("speculative_num_steps", "speculative_eagle_topk", "speculative_num_draft_tokens")
    steps, topk, draft = (_size(knobs, name) if name in knobs else None for name in names)
    adaptive = knobs.get("speculative_adaptive") is True
    adapts = adaptive and algorithm in {"EAGLE", "EAGLE3"} and topk in {None, 1} and not split
    adapts = adapts and knobs.get("two_batch_overlap") is not True
    if algorithm is not None and steps is topk is draft is None:
        steps, topk, draft = 3, 1, 4
    if adapts and version >= (0, 5, 14):
        steps, topk = steps or 3, 1
    if topk == 1 and steps is not None and algorithm not in {None, "NGRAM"}:
        draft = steps + 1
    return Speculation(
        algorithm=algorithm,
        steps=steps,
        topk=topk,
        draft_tokens=draft,
        adapts=adapts,
    )


def _hisparse(knobs: Knobs) -> HiSparse:
    top_k = _size(knobs, "hisparse_top_k") if "hisparse_top_k" in knobs else 2048
    return HiSparse(
        on=knobs.get("hisparse") is True,
        top_k=top_k,
        buffer=_size(knobs, "hisparse_device_buffer_size") if "hisparse_device_buffer_size" in knobs else 2 * top_k,
        ratio=_size(knobs, "hisparse_host_to_device_ratio") if "hisparse_host_to_device_ratio" in knobs else 2,
        block=_size(knobs, "hisparse_swap_in_block_size") if "hisparse_swap_in_block_size" in knobs else 960,
    )
