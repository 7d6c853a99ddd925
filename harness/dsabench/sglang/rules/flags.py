"""Spellings: flags of other versions, on a command line that somebody wrote by hand or found in a document.

Rendered commands never have them: most of these rules only stand on the page of rules.
"""

from __future__ import annotations

from dsabench.sglang.rules.rule import V9, V10, V11, V12, V19, V20, V23, Rule, says, without

RULES = (
    Rule(
        id="FL01",
        severity="error",
        since=V20,
        condition="a flag of the NSA days, or another that 0.5.20 dropped",
        unreachable="commands are written with the version's own names",
        words=says("argparse", "unrecognized arguments: ‹flag›"),
        fix="--dsa-*, --enable-prefill-cp with --cp-strategy, --cuda-graph-max-bs-decode",
        source="0.5.20=srt/server_args.py: no such argument",
    ),
    Rule(
        id="FL02",
        severity="error",
        until=V12,
        condition="a flag of the DSA days before 0.5.13",
        unreachable="commands are written with the version's own names",
        words=says("argparse", "unrecognized arguments: ‹flag›"),
        fix="--nsa-*, --enable-nsa-prefill-context-parallel with --nsa-prefill-cp-mode",
        source="0.5.12=srt/server_args.py: no such argument",
    ),
    Rule(
        id="FL03",
        severity="error",
        until=V9,
        condition="HiSparse in 0.5.9, which has flags of that kind but no HiSparse",
        knobs=("hisparse",),
        when=lambda s: s.on("hisparse"),
        words=says("argparse", "unrecognized arguments: --enable-hisparse"),
        fix="0.5.10 or later",
        change=without(
            "hisparse",
            "hisparse_top_k",
            "hisparse_device_buffer_size",
            "hisparse_host_to_device_ratio",
            "hisparse_swap_in_block_size",
        ),
        source="0.5.9=srt/server_args.py:4328",
    ),
    Rule(
        id="FL05",
        severity="advisory",
        since=V23,
        condition="--enable-dp-attention, which 0.5.23 reads as --attn-dp-size and announces to drop after 2026",
        unreachable="commands for 0.5.23 say --attn-dp-size",
        words=says(
            "log",
            "'--enable-dp-attention' is deprecated and will be removed in a future release. Use '--attn-dp-size <dp-size>' "
            "instead.",
        ),
        fix="--attn-dp-size N",
        source="0.5.23=srt/server_args.py:418; 0.5.23=srt/arg_groups/parallel_hook.py:37",
    ),
    Rule(
        id="FL06",
        severity="error",
        since=V10,
        condition="the decode role's sizes on the prefill role, dropped in 0.5.10",
        unreachable="there is no knob for them",
        words=says("argparse", "unrecognized arguments: ‹flag›"),
        fix="leave them out",
        source="0.5.9=srt/server_args.py:4861",
    ),
    Rule(
        id="FL07",
        severity="error",
        since=V20,
        condition="histograms of token counts, whose flag 0.5.20 dropped (without effect from 0.5.11 on)",
        knobs=("tokens_histogram",),
        when=lambda s: s.on("tokens_histogram"),
        words=says("argparse", "unrecognized arguments: --collect-tokens-histogram"),
        fix="leave tokens_histogram out; metrics: true has them",
        change=without("tokens_histogram"),
        source="0.5.20=srt/server_args.py: no such argument",
    ),
    Rule(
        id="FL08",
        severity="overwritten",
        since=V11,
        until=V19,
        condition="histograms of token counts, whose flag does nothing any more",
        knobs=("tokens_histogram",),
        when=lambda s: s.on("tokens_histogram"),
        words=says("silent", "nothing; /metrics has them anyway"),
        fix="leave tokens_histogram out",
        change=without("tokens_histogram"),
        source="0.5.11=srt/server_args.py:1; 0.5.16=srt/server_args.py:1",
    ),
    Rule(
        id="FL09",
        severity="advisory",
        condition="no CUDA graphs where decode steps follow prefills: their launches count in the time to first token",
        knobs=("cuda_graph", "overlap_schedule"),
        when=lambda s: (
            s.knobs.get("cuda_graph") is False and s.knobs.get("overlap_schedule") is not False and s.role != "prefill"
        ),
        words=says(
            "silent",
            "the decode step behind a prefill is launched, eagerly, before the first token is given away: on an H200, 20 "
            "layers, 150 ms instead of 80 for 128 new tokens",
        ),
        fix="leave cuda_graph on where times to first token are measured",
        change=without("cuda_graph"),
        source="0.5.9=srt/managers/scheduler.py:1135; 0.5.12=srt/managers/scheduler.py:1564; "
        "0.5.16=srt/managers/scheduler.py:1554; 0.5.23=srt/managers/scheduler.py:2061",
    ),
    Rule(
        id="EV01",
        severity="error",
        since=V23,
        condition="the runtime's own run_eval for gpqa, aime25 or mmlu",
        unreachable="no evaluation is run through it",
        words=says(
            "ValueError",
            "‹eval› is scored by sgl-eval; call sglang.test.sgl_eval_utils.run_sgl_eval instead of run_eval.",
        ),
        fix="score it here, or with sgl-eval",
        source="0.5.23=test/run_eval.py:132",
    ),
)
