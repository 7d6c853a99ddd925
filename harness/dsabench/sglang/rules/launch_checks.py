"""What the runtime checks of every launch, whatever the model: its last look at its arguments."""

from __future__ import annotations

from dsabench.model.value import KnobValue
from dsabench.sglang.rules.kv_sharding import rounds_chunks
from dsabench.sglang.rules.rule import V9, V10, V11, V13, V20, V23, Rule, Words, says, to, without
from dsabench.sglang.rules.setting import Setting

NO_SPECULATION = without(
    *("speculative_algorithm", "speculative_num_steps", "speculative_eagle_topk", "speculative_num_draft_tokens"),
    *("speculative_overlap", "speculative_adaptive", "speculative_adaptive_config", "speculative_draft_model"),
    "simulated_accept_length",
)
_TRUE = {"1", "true", "yes"}


def chunk_per_rank(s: Setting) -> int | None:
    """New tokens of prefill that one attention group gets per step; 0 or less does not split.

    None where it hangs on memory that is not known (0.5.16 srt/server_args.py:3927 and 5608).
    """
    asked = s.number("chunked_prefill_size")
    if asked is None:
        if s.device is None:
            return None
        asked = next(
            size for gib, size in ((35, 2048), (60, 4096), (160, 8192), (1 << 20, 16384)) if s.device.memory_gib < gib
        )
    return asked // s.parallel.attention_dp


def _uneven_chunk(s: Setting) -> bool:
    chunk, page = chunk_per_rank(s), s.kernels.page
    if rounds_chunks(s):
        return False
    return s.cuda and s.role != "decode" and chunk is not None and chunk > 0 and bool(page) and chunk % (page or 1) != 0


def _even_chunk(s: Setting) -> dict[str, KnobValue]:
    """The next smaller size of which every group gets whole pages, at least one."""
    step = (s.kernels.page or 1) * s.parallel.attention_dp
    return {"chunked_prefill_size": max((s.number("chunked_prefill_size") or 0) // step, 1) * step}


def _uneven_nodes(s: Setting) -> bool:
    return s.parallel.tp * s.parallel.pp % s.nodes != 0


def _even_ranks(s: Setting) -> dict[str, KnobValue]:
    """The next larger size with a power of two on each node, which the heads allow."""
    per_node = 1
    while s.nodes * per_node < s.parallel.tp:
        per_node *= 2
    return {"tp_size": s.nodes * per_node}


def _staged_speculation(s: Setting) -> bool:
    dropped_late = s.version <= V10 and s.mixed_chunk
    on_npu = s.version == V20 and s.device is not None and s.device.platform == "npu"
    return s.parallel.pp > 1 and (s.speculation.algorithm is not None or dropped_late) and not on_npu


def _odd_dense_width(s: Setting) -> bool:
    legal = {None, 1} if s.version < V13 else {None, 1, s.parallel.tp}
    replaced = s.parallel.cp and (s.parallel.cp_mode == "zigzag" or s.version <= V20)  # SL05, CP21
    return s.number("moe_dense_tp_size") not in legal and not replaced


RULES = (
    Rule(
        id="ND01",
        severity="error",
        condition="ranks that the nodes do not divide",
        knobs=("tp_size", "pp_size"),
        when=_uneven_nodes,
        words=says("AssertionError", "tp_size must be divisible by number of nodes"),
        fix="tp_size × pp_size a multiple of the nodes",
        change=_even_ranks,
        source="0.5.9=srt/server_args.py:5134; 0.5.16=srt/server_args.py:7579; 0.5.23=srt/arg_groups/validation_hook.py:180",
    ),
    Rule(
        id="DP06",
        severity="error",
        condition="whole replicas (dp_size without dp_attention) over several nodes",
        knobs=("dp_size", "dp_attention"),
        when=lambda s: s.parallel.dp > 1 and s.nodes > 1 and not s.parallel.dp_attention,
        words=(
            Words(V9, "AssertionError", "multi-node data parallel is not supported unless dp attention!"),
            Words(
                V23,
                "AssertionError",
                "multi-node data-parallel replicas are not supported; use attention DP (--attn-dp-size) across nodes",
            ),
        ),
        fix="dp_attention: true",
        change=to(dp_attention=True),
        source="0.5.9=srt/server_args.py:5145; 0.5.16=srt/server_args.py:7603; 0.5.23=srt/arg_groups/validation_hook.py:200",
    ),
    Rule(
        id="PP05",
        severity="error",
        until=V20,
        condition="pipeline stages with speculation (up to 0.5.10 with mixed chunks too)",
        knobs=("pp_size", "speculative_algorithm", "mixed_chunk"),
        when=_staged_speculation,
        words=(
            Words(
                V9,
                "AssertionError",
                "Pipeline parallelism is not compatible with overlap schedule, speculative decoding, mixed chunked "
                "prefill.",
            ),
            Words(
                V11,
                "AssertionError",
                "Pipeline parallelism is not compatible with overlap schedule, speculative decoding",
            ),
        ),
        fix="no speculation, or pp_size: 1",
        change=lambda s: {**NO_SPECULATION(s), "mixed_chunk": None},
        source="0.5.9=srt/server_args.py:5141; 0.5.12=srt/server_args.py:7253; 0.5.16=srt/server_args.py:7599; "
        "0.5.20=srt/arg_groups/validation_hook.py:83",
    ),
    Rule(
        id="PP06",
        severity="error",
        since=V23,
        condition="pipeline stages with another speculation than EAGLE",
        knobs=("pp_size", "speculative_algorithm"),
        when=lambda s: s.parallel.pp > 1 and s.speculation.algorithm not in {None, "EAGLE"},
        words=says(
            "AssertionError",
            "Pipeline parallelism currently only supports EAGLE (non-multi-layer) speculative decoding",
        ),
        fix="no speculation, or pp_size: 1",
        change=NO_SPECULATION,
        source="0.5.23=srt/arg_groups/validation_hook.py:136",
    ),
    Rule(
        id="PP07",
        severity="error",
        since=V23,
        condition="pipeline stages with speculation elsewhere than on the prefill role",
        knobs=("pp_size", "speculative_algorithm"),
        when=lambda s: (
            s.parallel.pp > 1
            and s.speculation.algorithm == "EAGLE"
            and s.role != "prefill"
            and s.env.get("SGLANG_ENABLE_PP_SPEC", "").lower() not in _TRUE
        ),
        words=says(
            "AssertionError",
            "PP + speculative decoding (MTP) is only supported on prefill nodes (disaggregation-mode=prefill)",
        ),
        fix="no speculation, or pp_size: 1",
        change=NO_SPECULATION,
        source="0.5.23=srt/arg_groups/validation_hook.py:161",
    ),
    Rule(
        id="MP03",
        severity="error",
        condition="a moe_dense_tp_size other than 1 (from 0.5.13 on, or tp_size)",
        knobs=("moe_dense_tp_size", "tp_size"),
        when=_odd_dense_width,
        words=(
            Words(V9, "AssertionError", "moe_dense_tp_size only support 1 and None currently"),
            Words(V13, "AssertionError", "moe_dense_tp_size only supports None, 1, or tp_size currently"),
        ),
        fix="moe_dense_tp_size: 1",
        change=to(moe_dense_tp_size=1),
        source="0.5.9=srt/server_args.py:5153; 0.5.16=srt/server_args.py:7612; 0.5.23=srt/arg_groups/validation_hook.py:211",
    ),
    Rule(
        id="CH01",
        severity="error",
        condition="a chunked_prefill_size of which a group of the attention gets no whole pages",
        knobs=("chunked_prefill_size", "dp_size", "dp_attention"),
        when=_uneven_chunk,
        words=says("AssertionError", "chunked_prefill_size must be divisible by page_size"),
        fix="a multiple of 64 × the groups of the attention",
        change=_even_chunk,
        source="0.5.9=srt/server_args.py:5182; 0.5.16=srt/server_args.py:7637; 0.5.23=srt/arg_groups/validation_hook.py:245",
    ),
    Rule(
        id="SN01",
        severity="error",
        condition="a colon in the served model's name",
        knobs=("served_model_name",),
        when=lambda s: ":" in (s.text("served_model_name") or ""),
        words=says(
            "AssertionError",
            "served_model_name cannot contain a colon (':') character. The colon is reserved for the 'model:adapter' "
            "syntax used in LoRA adapter specification. Invalid value: '{s.knobs[served_model_name]}'",
        ),
        fix="a name without a colon",
        change=without("served_model_name"),
        source="0.5.9=srt/server_args.py:5157; 0.5.16=srt/server_args.py:7617; 0.5.23=srt/arg_groups/validation_hook.py:216",
    ),
    Rule(
        id="MP04",
        severity="error",
        condition="an ep_size that does not divide tp_size",
        knobs=("ep_size", "tp_size"),
        when=lambda s: s.model.weights == "fp8" and s.parallel.tp % s.parallel.ep != 0 and s.parallel.moe_dp == 1,
        words=says("ValueError", "tp_size {s.parallel.tp} must be divisible by ep_size {s.parallel.ep}"),
        fix="ep_size: tp_size",
        change=lambda s: {"ep_size": s.parallel.tp},
        source="0.5.9=srt/model_executor/model_runner.py:707; "
        "0.5.16=srt/model_executor/model_runner_components/moe_ep_setup.py:125; "
        "0.5.23=srt/model_executor/model_runner_components/moe_ep_setup.py:152",
    ),
    Rule(
        id="CL01",
        severity="error",
        condition="a context_length beyond the model's positions",
        knobs=("context_length",),
        when=lambda s: (
            s.model.positions is not None
            and (s.number("context_length") or 0) > s.model.positions
            and s.env.get("SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN", "").lower() not in _TRUE
        ),
        words=says(
            "ValueError",
            "Warning: User-specified context_length ({s.knobs[context_length]}) is greater than the derived "
            "context_length ({s.model.positions}). This may lead to incorrect model outputs or CUDA errors. Note that the "
            "derived context_length may differ from max_position_embeddings in the model's config. To allow overriding "
            "this maximum, set the env var SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN=1",
        ),
        fix="the model's positions at most",
        change=lambda s: {"context_length": s.model.positions},
        source="0.5.9=srt/configs/model_config.py:383; 0.5.16=srt/configs/model_config.py:753; "
        "0.5.23=srt/configs/model_config.py:1315",
    ),
)
