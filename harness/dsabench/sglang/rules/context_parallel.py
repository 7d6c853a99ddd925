"""Context parallelism: of prefill over the attention's ranks, and of decode."""

from __future__ import annotations

from dsabench.sglang.rules.rule import (
    V9,
    V10,
    V11,
    V12,
    V13,
    V14,
    V19,
    V20,
    V23,
    Rule,
    Words,
    says,
    to,
    without,
)
from dsabench.sglang.rules.setting import Setting

_OFF = without("prefill_cp", "cp_mode", "attn_cp_size", "cache_layer_split")


def _cp(s: Setting) -> bool:
    """Prefill context parallelism where the runtime's branch for it is taken."""
    return s.parallel.cp and (s.cuda or s.rocm)


def _zigzag(s: Setting) -> bool:
    return _cp(s) and s.parallel.cp_mode == "zigzag"


def _interleave(s: Setting) -> bool:
    return _cp(s) and not _zigzag(s)


def _indivisible_by_groups(s: Setting) -> bool:
    groups = s.parallel.dp if s.version <= V20 else s.parallel.attention_dp
    width = s.parallel.attn_cp
    return width > 1 and s.parallel.tp % width == 0 and s.parallel.tp % (groups * width) != 0


def _zigzag_overwrites(s: Setting) -> bool:
    return _zigzag(s) and (
        s.text("moe_a2a_backend") not in {None, "deepep"}
        or s.number("ep_size") not in {None, s.parallel.tp}
        or s.number("moe_dense_tp_size") not in {None, 1}
    )


def _cp_width_is_derived(s: Setting) -> bool:
    keeps = s.version == V9 or (s.version >= V23 and s.parallel.cp_mode == "interleave")
    asked = s.number("attn_cp_size")
    return _cp(s) and not keeps and asked is not None and asked != s.parallel.attn_cp


def _fused_reduce(s: Setting) -> bool:
    """0.5.23 srt/arg_groups/model_hook.py:443 switches it on for GLM-5, and nothing off."""
    splits = s.parallel.attn_cp > 1 or s.parallel.moe_dp > 1
    return s.rocm and s.model.is_glm and s.nodes == 1 and not s.parallel.dp_attention and splits


RULES = (
    Rule(
        id="CP01",
        severity="error",
        until=V20,
        condition="interleaved context parallelism with data-parallel groups",
        knobs=("prefill_cp", "cp_mode", "dp_size", "dp_attention"),
        when=lambda s: _interleave(s) and s.parallel.dp != 1,
        words=(
            Words(V9, "AssertionError", "For round-robin split mode, dp attention is not supported."),
            Words(V14, "AssertionError", "interleave DSA CP does not support DP attention."),
        ),
        fix="dp_size: 1",
        change=lambda _: {"dp_size": 1, "dp_attention": None},
        source="0.5.9=srt/server_args.py:1235; 0.5.12=srt/server_args.py:1839; 0.5.16=srt/arg_groups/overrides.py:364",
    ),
    Rule(
        id="CP02",
        severity="error",
        until=V11,
        condition="context parallelism with a tp_size other than 8",
        knobs=("prefill_cp", "tp_size"),
        when=lambda s: _cp(s) and s.parallel.tp != 8,
        words=says(
            "AssertionError",
            "Current multi-machine CP support suffers from precision issues. So context parallel only support Single "
            "machine(tp_size == 8)",
        ),
        fix="tp_size: 8, and pp_size for more machines",
        change=to(tp_size=8),
        source="0.5.9=srt/server_args.py:1238; 0.5.10=srt/server_args.py:1561",
    ),
    Rule(
        id="CP03",
        severity="error",
        since=V12,
        condition="context parallelism with a tp_size above 8",
        knobs=("prefill_cp", "tp_size"),
        when=lambda s: _cp(s) and s.parallel.tp > 8,
        words=says(
            "AssertionError",
            "Context parallel only supports single machine (tp_size <= 8). Cross-machine CP has precision issues.",
        ),
        fix="tp_size: 8, and pp_size for more machines",
        change=to(tp_size=8),
        source="0.5.12=srt/server_args.py:1842; 0.5.16=srt/arg_groups/overrides.py:367; "
        "0.5.23=srt/arg_groups/model_overrides/deepseek_v2.py:124",
    ),
    Rule(
        id="CP04",
        severity="error",
        condition="context parallelism on the decode role",
        knobs=("prefill_cp",),
        when=lambda s: s.parallel.cp and s.role == "decode",
        words=(
            Words(
                V9,
                "AssertionError",
                "CP is only supported for prefill when PD disaggregation, please remove "
                "--enable-nsa-prefill-context-parallel.",
            ),
            Words(
                V13,
                "AssertionError",
                "CP is only supported for prefill when PD disaggregation, please remove "
                "--enable-dsa-prefill-context-parallel.",
            ),
            Words(
                V14,
                "AssertionError",
                "CP is only supported for prefill when PD disaggregation, please remove --enable-prefill-cp.",
            ),
        ),
        fix="prefill_cp on the prefill role only",
        change=_OFF,
        source="0.5.9=srt/server_args.py:1270; 0.5.12=srt/server_args.py:1885; 0.5.16=srt/server_args.py:4436; "
        "0.5.23=srt/arg_groups/model_hook.py:363",
    ),
    Rule(
        id="CP05",
        severity="error",
        condition="a tp_size that attn_cp_size does not divide",
        knobs=("tp_size", "attn_cp_size"),
        when=lambda s: s.parallel.attn_cp > 1 and s.parallel.tp % s.parallel.attn_cp != 0,
        words=says("AssertionError", "tp_size must be divisible by attn_cp_size"),
        fix="an attn_cp_size that divides tp_size",
        change=without("attn_cp_size"),
        source="0.5.9=srt/server_args.py:2088; 0.5.12=srt/server_args.py:3029; 0.5.16=srt/server_args.py:5558; "
        "0.5.23=srt/arg_groups/parallel_hook.py:160",
    ),
    Rule(
        id="CP06",
        severity="error",
        condition="a tp_size that attention groups × attn_cp_size do not divide",
        knobs=("tp_size", "dp_size", "attn_cp_size"),
        when=_indivisible_by_groups,
        words=(
            Words(V9, "AssertionError", "tp_size must be divisible by dp_size * attn_cp_size"),
            Words(V23, "AssertionError", "tp_size must be divisible by attn_dp_size * attn_cp_size"),
        ),
        fix="a dp_size and attn_cp_size whose product divides tp_size",
        change=without("attn_cp_size"),
        source="0.5.9=srt/server_args.py:2091; 0.5.12=srt/server_args.py:3032; 0.5.16=srt/server_args.py:5561; "
        "0.5.23=srt/arg_groups/parallel_hook.py:163",
    ),
    Rule(
        id="CP07",
        severity="error",
        condition="pipeline stages with attn_cp_size (0.5.9) or with moe_dp_size",
        knobs=("pp_size", "attn_cp_size", "moe_dp_size"),
        when=lambda s: (
            s.parallel.pp > 1
            and (s.parallel.moe_dp > 1 or (s.version == V9 and s.parallel.attn_cp > 1))
            and not _indivisible_by_groups(s)
        ),
        words=says("AssertionError", "PP is not supported with context parallelism"),
        fix="pp_size: 1, or in 0.5.9 no attn_cp_size (it has no say there)",
        change=without("attn_cp_size", "moe_dp_size"),
        source="0.5.9=srt/server_args.py:2092; 0.5.12=srt/server_args.py:3046; 0.5.16=srt/server_args.py:5575; "
        "0.5.23=srt/arg_groups/parallel_hook.py:178",
    ),
    Rule(
        id="CP08",
        severity="error",
        since=V14,
        condition="context parallelism without saying how tokens are split",
        knobs=("prefill_cp", "cp_mode"),
        when=lambda s: s.on("prefill_cp") and s.parallel.cp_mode is None,
        words=says("ValueError", "--cp-strategy must be set when --enable-prefill-cp is enabled."),
        fix="cp_mode: interleave",
        change=to(cp_mode="interleave"),
        source="0.5.16=srt/server_args.py:5537; 0.5.23=srt/arg_groups/parallel_hook.py:153",
    ),
    Rule(
        id="CP09",
        severity="error",
        since=V20,
        condition="zigzag with DeepSeek V3.2",
        knobs=("prefill_cp", "cp_mode"),
        when=lambda s: _zigzag(s) and s.model.architecture == "DeepseekV32ForCausalLM",
        words=says("ValueError", "DeepSeek V3.2 prefill CP does not support --cp-strategy zigzag; use interleave."),
        fix="cp_mode: interleave (with attention groups only from 0.5.23)",
        change=lambda s: {
            "cp_mode": "interleave",
            **({} if s.version >= V23 else {"dp_size": 1, "dp_attention": None}),
        },
        source="0.5.20=srt/arg_groups/parallel_hook.py:51; 0.5.23=srt/arg_groups/parallel_hook.py:129",
    ),
    Rule(
        id="CP10",
        severity="error",
        since=V20,
        condition="context parallelism on AMD",
        knobs=("prefill_cp",),
        when=lambda s: s.on("prefill_cp") and s.rocm,
        words=(
            Words(V20, "ValueError", "Prefill CP on HIP/NPU/MUSA is deprecated; CP support will be refactored soon."),
            Words(
                V23,
                "ValueError",
                "Prefill CP on HIP is only supported for DeepseekV4ForCausalLM, got '{s.model.architecture}'.",
            ),
        ),
        fix="no prefill_cp",
        change=_OFF,
        source="0.5.23=srt/arg_groups/parallel_hook.py:120",
    ),
    Rule(
        id="CP11",
        severity="error",
        until=V19,
        condition="interleaved context parallelism and a padded prompt length that the ranks do not divide",
        unreachable="a matter of single requests; the runtime pads them",
        words=(
            Words(
                V9,
                "AssertionError",
                "seq_len ‹tokens› is not divisible by cp_size ‹ranks› when nsa_prefill_cp_mode is round-robin-split",
            ),
            Words(
                V14,
                "AssertionError",
                "seq_len ‹tokens› is not divisible by cp_size ‹ranks› when dsa_prefill_cp_mode is round-robin-split",
            ),
        ),
        fix="none",
        source="0.5.9=srt/layers/attention/nsa/utils.py:158; 0.5.12=srt/layers/attention/nsa/utils.py:174; "
        "0.5.16=srt/layers/attention/dsa/utils.py:207",
    ),
    Rule(
        id="CP12",
        severity="error",
        since=V11,
        condition="a moe_dp_size above 1 that is not attn_cp_size",
        knobs=("attn_cp_size", "moe_dp_size"),
        when=lambda s: (
            s.parallel.moe_dp not in {1, s.parallel.attn_cp}
            and not (s.version >= V23 and _fused_reduce(s))
            and s.parallel.pp == 1
            and s.parallel.tp % s.parallel.moe_dp == 0
            and s.ep_asked * s.parallel.moe_dp <= s.parallel.tp
            and (s.ep_asked == 1 or s.ep_asked * s.parallel.moe_dp == s.parallel.tp)
        ),
        words=says("AssertionError", "attn_cp_size != moe_dp_size is only supported when moe_dp_size == 1"),
        fix="moe_dp_size: 1",
        change=without("moe_dp_size"),
        source="0.5.12=srt/server_args.py:3060; 0.5.16=srt/server_args.py:5589; 0.5.23=srt/arg_groups/parallel_hook.py:191",
    ),
    Rule(
        id="CP13",
        severity="error",
        since=V23,
        condition="context parallelism of decode and of prefill together",
        knobs=("dcp_size", "prefill_cp"),
        when=lambda s: s.parallel.dcp > 1 and s.on("prefill_cp"),
        words=says("ValueError", "--dcp-size > 1 does not support --enable-prefill-cp."),
        fix="dcp_size: 1",
        change=without("dcp_size"),
        source="0.5.23=srt/arg_groups/parallel_hook.py:250",
    ),
    Rule(
        id="CP14",
        severity="error",
        condition="experts spread so that ep_size × moe_dp_size is not tp_size",
        knobs=("ep_size", "moe_dp_size", "tp_size"),
        when=lambda s: (
            s.parallel.moe_dp > 1
            and s.parallel.tp % s.parallel.moe_dp == 0
            and s.parallel.pp == 1
            and s.ep_asked > 1
            and s.ep_asked * s.parallel.moe_dp < s.parallel.tp
        ),
        words=says("AssertionError", "ep_size * moe_dp_size must be equal to tp_size"),
        fix="moe_dp_size: 1",
        change=without("moe_dp_size"),
        source="0.5.9=srt/server_args.py:2107; 0.5.12=srt/server_args.py:3051; 0.5.16=srt/server_args.py:5580; "
        "0.5.23=srt/arg_groups/parallel_hook.py:182",
    ),
    Rule(
        id="CP22",
        severity="error",
        since=V23,
        condition="GLM-5 on one AMD node with attn_cp_size or moe_dp_size, which its fused all-reduce excludes",
        knobs=("attn_cp_size", "moe_dp_size"),
        when=_fused_reduce,
        words=says("AssertionError", "Aiter allreduce fusion is not supported with context parallelism"),
        fix="attn_cp_size: 1, moe_dp_size: 1",
        change=without("attn_cp_size", "moe_dp_size"),
        source="0.5.23=srt/arg_groups/parallel_hook.py:167",
    ),
)

NOTES = (
    Rule(
        id="CP15",
        severity="overwritten",
        since=V10,
        condition="an attn_cp_size that the runtime derives itself as tp_size / dp_size",
        knobs=("attn_cp_size", "prefill_cp", "cp_mode", "tp_size", "dp_size"),
        when=_cp_width_is_derived,
        words=says("silent", "attn_cp_size becomes {s.parallel.attn_cp}"),
        fix="leave attn_cp_size out",
        change=lambda s: {"attn_cp_size": s.parallel.attn_cp},
        source="0.5.10=srt/server_args.py:1563; 0.5.12=srt/server_args.py:1844; 0.5.16=srt/arg_groups/overrides.py:374; "
        "0.5.23=srt/arg_groups/model_overrides/deepseek_v2.py:130",
    ),
    Rule(
        id="CP16",
        severity="advisory",
        condition="context parallelism, which its authors call experimental and tried on Hopper only",
        knobs=("prefill_cp", "cp_mode"),
        when=_cp,
        words=says(
            "log",
            "Context parallel feature is still under experiment. It has only been verified on Hopper platform.",
        ),
        fix="compare its output with that of plain tensor parallelism",
        source="documents: usage guide, 'context parallel optimization (experimental)'; 0.5.9=srt/server_args.py:1216; "
        "0.5.16=srt/arg_groups/overrides.py:345; 0.5.23=srt/arg_groups/model_overrides/deepseek_v2.py:100",
    ),
    Rule(
        id="CP17",
        severity="advisory",
        condition="zigzag, which prefills one request at a time and needs DeepEP",
        knobs=("prefill_cp", "cp_mode"),
        when=_zigzag,
        words=says("document", "prefill batches of 1, moe_a2a_backend deepep, moe_dense_tp_size 1"),
        fix="cp_mode: interleave",
        change=lambda _: {"cp_mode": "interleave", "dp_size": 1, "dp_attention": None},
        source="documents: usage guide, 'In sequence splitting'",
    ),
    Rule(
        id="CP18",
        severity="advisory",
        condition="pipeline stages with context parallelism elsewhere than on H20, where alone it was tested",
        knobs=("pp_size", "prefill_cp"),
        when=lambda s: _cp(s) and s.parallel.pp > 1 and s.device is not None and s.device.name != "h20",
        words=says("document", "only tested on H20 96G"),
        fix="compare its output with that of one machine",
        source="documents: usage guide, 'Pipeline Parallel + Context Parallel (PP + CP)'",
    ),
    Rule(
        id="CP19",
        severity="overwritten",
        condition="context parallelism over groups of one rank: nothing is split",
        knobs=("prefill_cp", "tp_size", "dp_size"),
        when=lambda s: _cp(s) and s.parallel.tp <= s.parallel.dp,
        words=says("document", "tp_size must be larger than dp_size, or cp_size is 1"),
        fix="a dp_size below tp_size",
        change=_OFF,
        source="documents: usage guide, 'In sequence splitting'",
    ),
    Rule(
        id="CP20",
        severity="advisory",
        until=V9,
        condition="zigzag over several machines or with disaggregation, which an older document excludes",
        knobs=("prefill_cp", "cp_mode"),
        when=lambda s: _zigzag(s) and (s.nodes > 1 or s.role != "server"),
        words=says("document", "multi-node and PD disaggregation are not supported"),
        fix="cp_mode: interleave",
        change=lambda _: {"cp_mode": "interleave", "dp_size": 1, "dp_attention": None},
        source="documents: usage guide with Chinese text, 'In sequence splitting (default setting)'",
    ),
    Rule(
        id="SL05",
        severity="overwritten",
        condition="with zigzag another expert exchange, ep_size or moe_dense_tp_size than it needs",
        knobs=("prefill_cp", "cp_mode", "moe_a2a_backend", "ep_size", "moe_dense_tp_size"),
        when=_zigzag_overwrites,
        words=(
            Words(
                V9,
                "log",
                "For in-seq split mode, we have the following restrictions: moe_dense_tp_size == 1, moe_a2a_backend == "
                "deepep, ep_size == tp_size, kv_cache_dtype == bf16, batch_size == 1",
            ),
            Words(
                V10,
                "log",
                "For in-seq split mode, we have the following restrictions: moe_dense_tp_size == 1, moe_a2a_backend == "
                "deepep, ep_size == tp_size, batch_size == 1",
            ),
            Words(
                V14,
                "log",
                "zigzag DSA CP requires moe_dense_tp_size=1, moe_a2a_backend=deepep, ep_size=tp_size, batch_size=1.",
            ),
        ),
        fix="leave the three out",
        change=without("moe_a2a_backend", "ep_size", "moe_dense_tp_size"),
        source="0.5.9=srt/server_args.py:1220; 0.5.10=srt/server_args.py:1543; 0.5.16=srt/arg_groups/overrides.py:357; "
        "0.5.23=srt/arg_groups/model_overrides/deepseek_v2.py:113",
    ),
    Rule(
        id="CP21",
        severity="overwritten",
        until=V20,
        condition="with interleaved context parallelism a moe_dense_tp_size other than 1",
        knobs=("prefill_cp", "cp_mode", "moe_dense_tp_size"),
        when=lambda s: (
            s.parallel.cp and s.parallel.cp_mode != "zigzag" and s.number("moe_dense_tp_size") not in {None, 1}
        ),
        words=says("silent", "moe_dense_tp_size becomes 1"),
        fix="leave moe_dense_tp_size out",
        change=without("moe_dense_tp_size"),
        source="0.5.9=srt/server_args.py:1232; 0.5.16=srt/arg_groups/overrides.py:353; "
        "0.5.20=srt/arg_groups/model_overrides/deepseek_v2.py:96",
    ),
)
