"""Data-parallel attention, pipeline stages, groups of the experts."""

from __future__ import annotations

from dsabench.sglang.rules.rule import V9, V15, V16, V19, V23, Rule, says, to, without
from dsabench.sglang.rules.setting import Setting


def _stages(s: Setting) -> tuple[int, ...] | None:
    """Layers per stage as asked; None where the text is no list of numbers."""
    parts = (s.text("pp_layer_partition") or "").split(",")
    return tuple(map(int, parts)) if all(part.strip().isdecimal() for part in parts) else None


def _partition(s: Setting) -> bool:
    return s.asked("pp_layer_partition") and not (s.parallel.pp == 1 and s.version >= V19)


def _other_count(s: Setting) -> bool:
    stages = _stages(s)
    return _partition(s) and stages is not None and len(stages) != s.parallel.pp


def _other_sum(s: Setting) -> bool:
    stages = _stages(s)
    return (
        _partition(s)
        and stages is not None
        and len(stages) == s.parallel.pp
        and s.model.layers is not None
        and sum(stages) != s.model.layers
    )


RULES = (
    Rule(
        id="DP01",
        severity="error",
        since=V23,
        condition="fewer than one attention group (0 itself ends in a ZeroDivisionError before the check)",
        unreachable="dp_size starts at 1",
        words=says("ValueError", "--attn-dp-size must be positive (got ‹groups›)."),
        fix="dp_size: 1",
        source="0.5.23=srt/arg_groups/parallel_hook.py:286",
    ),
    Rule(
        id="DP02",
        severity="error",
        since=V23,
        condition="replicas and attention groups together",
        unreachable="dp_size is one or the other, by dp_attention",
        words=says(
            "ValueError",
            "--dp-size ‹replicas› with --attn-dp-size ‹groups›: data-parallel replicas combined with attention data "
            "parallelism are not supported.",
        ),
        fix="one of them",
        source="0.5.23=srt/arg_groups/parallel_hook.py:288",
    ),
    Rule(
        id="DP03",
        severity="error",
        condition="attention groups that do not divide tp_size",
        knobs=("tp_size", "dp_size", "dp_attention"),
        when=lambda s: s.parallel.dp_attention and s.parallel.tp % s.parallel.dp != 0,
        words=says("AssertionError"),
        fix="a dp_size that divides tp_size",
        change=lambda s: {
            "dp_size": next(n for n in range(min(s.parallel.dp, s.parallel.tp), 0, -1) if s.parallel.tp % n == 0)
        },
        source="0.5.9=srt/server_args.py:2116; 0.5.12=srt/server_args.py:3069; 0.5.16=srt/server_args.py:5607; "
        "0.5.23=srt/arg_groups/parallel_hook.py:326",
    ),
    Rule(
        id="DP04",
        severity="overwritten",
        condition="a chunked_prefill_size with attention groups: each rank gets its share of it",
        knobs=("chunked_prefill_size", "dp_size", "dp_attention"),
        when=lambda s: s.parallel.dp_attention and (s.number("chunked_prefill_size") or 0) > 0,
        words=says(
            "silent", "chunked_prefill_size is divided by {s.parallel.dp}, schedule_conservativeness multiplied by 0.3"
        ),
        fix="read chunked_prefill_size as that of all ranks together",
        source="0.5.9=srt/server_args.py:2117; 0.5.16=srt/server_args.py:5609; 0.5.23=srt/arg_groups/parallel_hook.py:330",
    ),
    Rule(
        id="SL06",
        severity="overwritten",
        condition="dp_attention with one group",
        knobs=("dp_attention", "dp_size"),
        when=lambda s: s.on("dp_attention") and s.parallel.dp == 1,
        words=says("silent", "attention stays undivided"),
        fix="leave dp_attention out",
        change=without("dp_attention"),
        source="0.5.9=srt/server_args.py:2110; 0.5.16=srt/arg_groups/overrides.py:2020; "
        "0.5.23=srt/arg_groups/parallel_hook.py:37",
    ),
    Rule(
        id="DP05",
        severity="advisory",
        condition="dp_size without dp_attention: whole replicas, each on tp_size GPUs of its own",
        knobs=("dp_size", "dp_attention", "tp_size"),
        when=lambda s: s.parallel.dp > 1 and not s.parallel.dp_attention,
        words=says("silent", "it needs {s.parallel.dp} times the GPUs"),
        fix="dp_attention: true splits the attention instead",
        change=to(dp_attention=True),
        source="0.5.9=srt/managers/data_parallel_controller.py:200; documents: usage guide, 'DP Attention'",
    ),
    Rule(
        id="MP01",
        severity="error",
        condition="a moe_dp_size that does not divide tp_size",
        knobs=("moe_dp_size", "tp_size"),
        when=lambda s: s.parallel.moe_dp > 1 and s.parallel.tp % s.parallel.moe_dp != 0,
        words=says("AssertionError", "tp_size must be divisible by moe_dp_size"),
        fix="moe_dp_size: 1",
        change=without("moe_dp_size"),
        source="0.5.9=srt/server_args.py:2097; 0.5.12=srt/server_args.py:3040; 0.5.16=srt/server_args.py:5569; "
        "0.5.23=srt/arg_groups/parallel_hook.py:172",
    ),
    Rule(
        id="MP02",
        severity="error",
        condition="expert groups × expert ranks beyond tp_size",
        knobs=("moe_dp_size", "ep_size", "tp_size"),
        when=lambda s: (
            s.parallel.moe_dp > 1
            and s.parallel.tp % s.parallel.moe_dp == 0
            and s.ep_asked * s.parallel.moe_dp > s.parallel.tp
        ),
        words=says("AssertionError", "ep_size * moe_dp_size must be less than or equal to tp_size"),
        fix="moe_dp_size: 1",
        change=without("moe_dp_size"),
        source="0.5.9=srt/server_args.py:2100; 0.5.12=srt/server_args.py:3043; 0.5.16=srt/server_args.py:5572; "
        "0.5.23=srt/arg_groups/parallel_hook.py:175",
    ),
    Rule(
        id="PP01",
        severity="error",
        condition="a layer partition with another number of stages than pp_size",
        knobs=("pp_layer_partition", "pp_size"),
        when=_other_count,
        words=says("ValueError", "len(partitions)=‹stages› does not match pp_size={s.parallel.pp}."),
        fix="as many numbers as stages",
        change=without("pp_layer_partition"),
        source="0.5.9=srt/distributed/utils.py:80; 0.5.23=srt/distributed/utils.py:131",
    ),
    Rule(
        id="PP02",
        severity="error",
        condition="a layer partition whose sum is not the model's layers",
        knobs=("pp_layer_partition", "pp_size"),
        when=_other_sum,
        words=says("ValueError", "sum(partitions)=‹layers› does not match num_hidden_layers={s.model.layers}."),
        fix="numbers that add up to the model's layers",
        change=without("pp_layer_partition"),
        source="0.5.9=srt/distributed/utils.py:82; 0.5.23=srt/distributed/utils.py:133",
    ),
    Rule(
        id="PP03",
        severity="error",
        condition="a layer partition that is no list of numbers",
        knobs=("pp_layer_partition",),
        when=lambda s: _partition(s) and _stages(s) is None,
        words=says("ValueError", "Invalid partition string: {s.knobs[pp_layer_partition]}"),
        fix="numbers with commas between",
        change=without("pp_layer_partition"),
        source="0.5.9=srt/distributed/utils.py:76; 0.5.23=srt/distributed/utils.py:127",
    ),
    Rule(
        id="PP04",
        severity="overwritten",
        since=V9,
        condition="overlapping schedules with pipeline stages",
        knobs=("pp_size", "overlap_schedule", "speculative_overlap"),
        when=lambda s: s.parallel.pp > 1 and (s.on("overlap_schedule") or s.on("speculative_overlap")),
        words=says("log", "Pipeline parallelism is incompatible with overlap schedule."),
        fix="leave the overlap out",
        change=without("overlap_schedule", "speculative_overlap"),
        source="0.5.9=srt/server_args.py:2270; 0.5.16=srt/arg_groups/overrides.py:2106; "
        "0.5.23=srt/arg_groups/overrides.py:1624",
    ),
    Rule(
        id="DC01",
        severity="error",
        since=V23,
        condition="context parallelism of decode with disaggregation",
        knobs=("dcp_size",),
        when=lambda s: s.model.is_dsa and s.parallel.dcp > 1 and s.role != "server" and not s.hisparse.on,
        words=says("ValueError", "DSA DCP does not support PD disaggregation."),
        fix="dcp_size: 1",
        change=without("dcp_size"),
        source="0.5.23=srt/arg_groups/model_overrides/deepseek_v2.py:25",
    ),
    Rule(
        id="DC02",
        severity="error",
        since=V23,
        condition="context parallelism of decode with several drafts per step",
        knobs=("dcp_size", "speculative_eagle_topk"),
        when=lambda s: (
            s.model.is_dsa
            and s.parallel.dcp > 1
            and s.role == "server"
            and not s.hisparse.on
            and s.number("speculative_eagle_topk") not in {None, 1}
        ),
        words=says("ValueError", "DSA DCP requires --speculative-eagle-topk 1."),
        fix="speculative_eagle_topk: 1",
        change=to(speculative_eagle_topk=1),
        source="0.5.23=srt/arg_groups/model_overrides/deepseek_v2.py:27",
    ),
    Rule(
        id="DC03",
        severity="error",
        since=V15,
        until=V16,
        condition="context parallelism of decode with speculation on NVIDIA",
        knobs=("dcp_size", "speculative_algorithm"),
        when=lambda s: s.cuda and s.parallel.dcp > 1 and s.speculation.algorithm is not None,
        words=says(
            "ValueError",
            "Decode context parallel (--dcp-size / --decode-context-parallel-size > 1) on CUDA platform does not support "
            "any speculative algorithm, but got dcp_size={s.parallel.dcp} on a CUDA platform with speculative decoding "
            "enabled.",
        ),
        fix="dcp_size: 1",
        change=without("dcp_size"),
        source="0.5.15=srt/server_args.py:2854; 0.5.16=srt/server_args.py:3168",
    ),
)
