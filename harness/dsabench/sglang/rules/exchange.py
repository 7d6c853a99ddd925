"""The exchange of tokens between expert ranks: what each backend asks of the rest of the setting."""

from __future__ import annotations

from dsabench.sglang.rules.launch_checks import chunk_per_rank
from dsabench.sglang.rules.rule import V9, V10, V13, V15, V17, V19, V23, Rule, Words, says, without
from dsabench.sglang.rules.setting import Setting

_NONE = without("moe_a2a_backend")


def room(s: Setting, variable: str, default: int) -> int:
    """Tokens that an exchange has buffers for."""
    text = s.env.get(variable, "")
    return int(text) if text.isdecimal() else default


def _beyond_room(s: Setting, exchange: str, variable: str, default: int) -> bool:
    """More new tokens per rank and step than the exchange has buffers for. The decode role is let off from 0.5.10."""
    chunk = chunk_per_rank(s)
    checked = s.role != "decode" or s.version < V10
    graph = s.number("cuda_graph_max_bs") or 0 if exchange == "pplx" else 0
    exchanged = checked and s.parallel.a2a == exchange and chunk is not None and chunk > 0
    return exchanged and max(chunk or 0, graph) > room(s, variable, default)


def splits_by_every_rank(s: Setting) -> bool:
    """Whether every rank is a group of the attention of its own."""
    return s.parallel.attention_dp == s.parallel.tp and s.parallel.attention_dp > 1


RULES = (
    Rule(
        id="MO11",
        severity="error",
        condition="the mori exchange with more new tokens per rank and step than its buffers hold (4096 unless set)",
        knobs=("moe_a2a_backend", "chunked_prefill_size", "dp_size", "dp_attention"),
        when=lambda s: _beyond_room(s, "mori", "SGLANG_MORI_NUM_MAX_DISPATCH_TOKENS_PER_RANK", 4096),
        words=(
            Words(
                V9,
                "AssertionError",
                "SGLANG_MORI_NUM_MAX_DISPATCH_TOKENS_PER_RANK (default 4096) must be larger or equal to "
                "chunked_prefill_size",
            ),
            Words(
                V15,
                "AssertionError",
                "SGLANG_MORI_NUM_MAX_DISPATCH_TOKENS_PER_RANK (default 4096) must be >= the per-rank MoRI dispatch "
                "tokens (chunked_prefill_size by default)",
            ),
        ),
        fix="a chunked_prefill_size of at most 4096 per group of the attention, or the variable raised",
        change=lambda s: {"chunked_prefill_size": 4096 * s.parallel.attention_dp},
        source="0.5.9=srt/server_args.py:2228; 0.5.16=srt/server_args.py:5903; 0.5.23=srt/arg_groups/moe_hook.py:570",
    ),
    Rule(
        id="MO12",
        severity="error",
        since=V13,
        condition="flashinfer's exchange without one group of the attention per rank",
        knobs=("moe_a2a_backend", "tp_size", "dp_size", "dp_attention"),
        when=lambda s: s.parallel.a2a == "flashinfer" and not splits_by_every_rank(s),
        words=(
            Words(
                V13,
                "AssertionError",
                "Flashinfer MoE A2A is only supported with dp_size == tp_size and --enable-dp-attention",
            ),
            Words(
                V23,
                "AssertionError",
                "Flashinfer MoE A2A requires --attn-dp-size equal to --tp-size, except for Muse Spark TP4/EP4 or "
                "TP8/EP8 prefill sequence parallelism.",
            ),
        ),
        fix="dp_size: tp_size with dp_attention, or moe_a2a_backend: none",
        change=_NONE,
        source="0.5.13=srt/server_args.py:3570; 0.5.16=srt/server_args.py:5868; 0.5.23=srt/arg_groups/moe_hook.py:483",
    ),
    Rule(
        id="MO13",
        severity="error",
        since=V17,
        condition="the pplx exchange with fewer than two groups of the attention",
        knobs=("moe_a2a_backend", "dp_size", "dp_attention"),
        when=lambda s: s.parallel.a2a == "pplx" and s.parallel.attention_dp < 2 and s.text("deepep_mode") != "normal",
        words=(
            Words(
                V17,
                "AssertionError",
                "moe_a2a_backend='pplx' requires --enable-dp-attention with at least 2 DP groups (--dp-size >= 2).",
            ),
            Words(
                V23,
                "AssertionError",
                "moe_a2a_backend='pplx' requires attention DP with at least 2 groups (--attn-dp-size >= 2).",
            ),
        ),
        fix="dp_attention with a dp_size of 2 or more, or moe_a2a_backend: none",
        change=_NONE,
        source="0.5.20=srt/arg_groups/moe_hook.py:500; 0.5.23=srt/arg_groups/moe_hook.py:592",
    ),
    Rule(
        id="MO14",
        severity="error",
        since=V17,
        condition="the pplx exchange with more new tokens per rank and step, or a larger CUDA graph, than its buffers hold "
        "(128 unless set)",
        knobs=("moe_a2a_backend", "chunked_prefill_size", "cuda_graph_max_bs", "dp_size", "dp_attention"),
        when=lambda s: (
            s.parallel.attention_dp > 1
            and s.text("deepep_mode") != "normal"
            and s.parallel.runner in {"auto", "deep_gemm"}
            and _beyond_room(s, "pplx", "SGLANG_PPLX_NUM_MAX_DISPATCH_TOKENS_PER_RANK", 128)
        ),
        words=says(
            "AssertionError",
            "SGLANG_PPLX_NUM_MAX_DISPATCH_TOKENS_PER_RANK (default 128) must be >= the per-rank pplx dispatch tokens "
            "(chunked_prefill_size, or the decode cuda-graph batch size)",
        ),
        fix="a chunked_prefill_size of at most 128 per group of the attention, or the variable raised",
        change=lambda s: {"chunked_prefill_size": 128 * s.parallel.attention_dp, "cuda_graph_max_bs": None},
        source="0.5.20=srt/arg_groups/moe_hook.py:526; 0.5.23=srt/arg_groups/moe_hook.py:616",
    ),
    Rule(
        id="MO15",
        severity="error",
        since=V19,
        condition="DeepEP's second version with a model that it was not validated for (GLM-5 is, from 0.5.23)",
        knobs=("moe_a2a_backend",),
        when=lambda s: (
            s.parallel.a2a == "deepep_v2"
            and (s.model.architecture == "DeepseekV32ForCausalLM" or (s.model.is_glm and s.version < V23))
        ),
        words=(
            Words(
                V19,
                "ValueError",
                "DeepEP v2 MoE is not validated for '{s.model.architecture}'; supported architectures are ‹a list›. "
                "Other model workflows may require an all-reduce after A2A combine. Use --moe-a2a-backend deepep.",
            ),
            Words(
                V23,
                "ValueError",
                "DeepEP v2 MoE is not validated for '{s.model.architecture}'. The model package must register its "
                "architecture with register_deepep_v2_model, because its combine and post-expert reduction semantics "
                "must be validated first.",
            ),
        ),
        fix="moe_a2a_backend: deepep",
        change=lambda _: {"moe_a2a_backend": "deepep"},
        source="0.5.20=srt/arg_groups/moe_hook.py:623; 0.5.23=srt/arg_groups/moe_hook.py:727",
    ),
    Rule(
        id="TB03",
        severity="error",
        since=V15,
        condition="two-batch overlap with neither an exchange between expert ranks nor groups of the attention",
        knobs=("two_batch_overlap", "moe_a2a_backend", "dp_size", "dp_attention"),
        when=lambda s: s.on("two_batch_overlap") and s.parallel.a2a == "none" and not s.parallel.dp_attention,
        words=(
            Words(
                V15,
                "ValueError",
                "When enabling two batch overlap without an EP a2a backend (moe_a2a_backend='none'), "
                "--enable-dp-attention is required (DeepSeek-V4 non-EP DP TBO path).",
            ),
            Words(
                V23,
                "ValueError",
                "When enabling two batch overlap without an EP a2a backend (moe_a2a_backend='none'), attention DP "
                "(--attn-dp-size) is required (DeepSeek-V4 non-EP DP TBO path).",
            ),
        ),
        fix="moe_a2a_backend: deepep",
        change=lambda s: {"moe_a2a_backend": "deepep", "ep_size": s.parallel.tp},
        source="0.5.15=srt/server_args.py:6546; 0.5.16=srt/server_args.py:7569; "
        "0.5.23=srt/arg_groups/validation_hook.py:769",
    ),
)
