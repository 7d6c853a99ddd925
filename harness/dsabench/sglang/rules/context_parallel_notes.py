"""Context parallelism: what it overwrites, and what its authors did not try."""

from __future__ import annotations

from dsabench.sglang.rules.rule import (
    V9,
    V10,
    V14,
    V20,
    V23,
    Rule,
    Words,
    says,
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


RULES = (
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
