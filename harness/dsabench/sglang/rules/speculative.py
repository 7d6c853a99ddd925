"""Speculative decoding: MTP (EAGLE) and its relatives."""

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

_SPEC_V2 = "SGLANG_ENABLE_SPEC_V2"
_PARAMETERS = ("speculative_num_steps", "speculative_eagle_topk", "speculative_num_draft_tokens")


def _asks_overlap(s: Setting) -> bool:
    return s.on("speculative_overlap") or s.env.get(_SPEC_V2, "").lower() in {"1", "true"}


def _paged(s: Setting) -> bool:
    """Whether pages hold more than one token, on whichever attention backend."""
    return s.model.is_dsa and (s.kernels.page or 1) > 1


def _draft_is_corrected(s: Setting) -> bool:
    asked = s.number("speculative_num_draft_tokens")
    return (
        s.speculation.is_eagle_like
        and s.speculation.topk == 1
        and s.speculation.steps is not None
        and asked is not None
        and asked != s.speculation.steps + 1
    )


def _sets_its_own(s: Setting) -> bool:
    """Adaptive speculation fills in what is not given."""
    return s.speculation.adapts and s.version >= V14


def _parameters_without_steps(s: Setting) -> bool:
    return (
        s.speculation.is_eagle_like
        and not _sets_its_own(s)
        and not s.asked("speculative_num_steps")
        and s.asked("speculative_eagle_topk", "speculative_num_draft_tokens")
    )


def _steps_without_topk(s: Setting) -> bool:
    return (
        s.speculation.is_eagle_like
        and not _sets_its_own(s)
        and s.asked("speculative_num_steps")
        and not s.asked("speculative_eagle_topk")
    )


def _off_the_ladder(s: Setting) -> bool:
    """Steps that the built-in ladder of adaptive speculation does not have (srt/speculative/adaptive_spec_params.py)."""
    ladder = {0, 1, 3, 7} if s.version < V20 else {0, 1, 3, 5, 7}
    steps = s.number("speculative_num_steps")
    own = s.asked("speculative_adaptive_config")
    return s.speculation.adapts and not own and steps not in {None, *ladder}


RULES = (
    Rule(
        id="SP01",
        severity="error",
        until=V10,
        condition="overlapping speculation with several drafts per step",
        knobs=("speculative_overlap", "speculative_eagle_topk"),
        when=lambda s: s.speculation.is_eagle_like and _asks_overlap(s) and (s.speculation.topk or 1) > 1,
        words=says("ValueError", "Spec v2 currently only supports topk = 1 for speculative decoding."),
        fix="speculative_eagle_topk: 1",
        change=to(speculative_eagle_topk=1),
        source="0.5.9=srt/server_args.py:2381; 0.5.10=srt/server_args.py:3007",
    ),
    Rule(
        id="SP02",
        severity="error",
        condition="several drafts per step on the DSA backend, whose pages hold 64 tokens",
        knobs=("speculative_eagle_topk",),
        when=lambda s: (
            s.speculation.is_eagle_like
            and (s.uses_dsa or (s.version <= V12 and s.model.is_dsa and s.kernels.attention == "triton"))
            and (s.speculation.topk or 1) > 1
            and (s.kernels.page or 1) > 1
            and not (s.version <= V10 and _asks_overlap(s))
        ),
        words=(
            Words(
                V9,
                "ValueError",
                "speculative_eagle_topk > 1 with page_size > 1 is unstable and produces incorrect results for paged "
                "attention backends. This combination is only supported for the 'flashinfer' backend.",
            ),
            Words(
                V13,
                "ValueError",
                "speculative_eagle_topk > 1 with page_size > 1 is only supported on ('flashinfer', 'fa3', 'triton'); got "
                "attention_backend='dsa'. Use page_size == 1 or one of those backends.",
            ),
        ),
        fix="speculative_eagle_topk: 1",
        change=lambda s: {
            "speculative_eagle_topk": 1,
            "speculative_num_draft_tokens": (s.speculation.steps or 3) + 1,
            "speculative_num_steps": s.speculation.steps or 3,
        },
        source="0.5.9=srt/server_args.py:2458; 0.5.12=srt/server_args.py:3843; "
        "0.5.16=srt/arg_groups/speculative_hook.py:645; 0.5.23=srt/arg_groups/speculative_hook.py:1279; "
        "documents: usage guide, 'Multi-token Prediction'",
    ),
    Rule(
        id="SP03",
        severity="overwritten",
        condition="one draft per step and speculative_num_draft_tokens other than steps + 1",
        knobs=_PARAMETERS,
        when=lambda s: _draft_is_corrected(s) and not _sets_its_own(s),
        words=says(
            "log",
            "speculative_num_draft_tokens is adjusted to speculative_num_steps + 1 when speculative_eagle_topk == 1",
        ),
        fix="speculative_num_draft_tokens: steps + 1",
        change=lambda s: {"speculative_num_draft_tokens": s.speculation.draft_tokens},
        source="0.5.9=srt/server_args.py:2448; 0.5.12=srt/server_args.py:3833; "
        "0.5.16=srt/arg_groups/speculative_hook.py:630; 0.5.23=srt/arg_groups/speculative_hook.py:1260",
    ),
    Rule(
        id="SP04",
        severity="advisory",
        condition="speculation without max_running_requests, which then becomes 48",
        knobs=("speculative_algorithm", "max_running_requests"),
        when=lambda s: s.speculation.algorithm is not None and not s.asked("max_running_requests"),
        words=says(
            "log",
            "Max running requests is reset to 48 for speculative decoding. You can override this by explicitly setting "
            "--max-running-requests.",
        ),
        fix="set max_running_requests to the batch that is measured",
        change=to(max_running_requests=48),
        source="0.5.9=srt/server_args.py:2365; 0.5.12=srt/server_args.py:3745; "
        "0.5.16=srt/arg_groups/speculative_hook.py:511; 0.5.23=srt/arg_groups/speculative_hook.py:1091; "
        "documents: usage guide, 'Multi-token Prediction'",
    ),
    Rule(
        id="SP05",
        severity="error",
        condition="a stand-alone draft model with attention groups",
        knobs=("speculative_algorithm", "dp_attention", "dp_size"),
        when=lambda s: s.speculation.algorithm == "STANDALONE" and s.parallel.dp_attention,
        words=says("ValueError", "Currently standalone speculative decoding does not support dp attention."),
        fix="speculative_algorithm: EAGLE",
        change=to(speculative_algorithm="EAGLE"),
        source="0.5.9=srt/server_args.py:2359; 0.5.12=srt/server_args.py:3739; "
        "0.5.16=srt/arg_groups/speculative_hook.py:504; 0.5.23=srt/arg_groups/speculative_hook.py:1083",
    ),
    Rule(
        id="SP06",
        severity="error",
        until=V11,
        condition="n-gram speculation with attention groups, where pages of one token (AMD up to 0.5.11) let it come so far",
        knobs=("speculative_algorithm", "dp_attention", "dp_size"),
        when=lambda s: s.speculation.algorithm == "NGRAM" and s.parallel.dp_attention and not _paged(s),
        words=says("ValueError", "Currently ngram speculative decoding does not support dp attention."),
        fix="speculative_algorithm: EAGLE",
        change=to(speculative_algorithm="EAGLE"),
        source="0.5.9=srt/server_args.py:2499; 0.5.12=srt/server_args.py:3905; "
        "0.5.16=srt/arg_groups/speculative_hook.py:719; 0.5.23=srt/arg_groups/speculative_hook.py:1370",
    ),
    Rule(
        id="SP07",
        severity="overwritten",
        since=V14,
        condition="SGLANG_ENABLE_SPEC_V2, which is read no more; up to 0.5.20 the log says so, later nothing",
        knobs=(),
        when=lambda s: _SPEC_V2 in s.env,
        words=(
            Words(
                V14,
                "log",
                "SGLANG_ENABLE_SPEC_V2 has been removed: speculative decoding always runs the V2 worker. Use "
                "--disable-overlap-schedule to select the non-overlap (synchronous) path.",
            ),
            Words(V23, "silent", "nothing"),
        ),
        fix="speculative_overlap: false selects the synchronous path",
        source="0.5.16=srt/arg_groups/speculative_hook.py:87",
    ),
    Rule(
        id="SP08",
        severity="error",
        condition="n-gram speculation with a DSA model, whose pages hold 64 tokens",
        knobs=("speculative_algorithm",),
        when=lambda s: s.speculation.algorithm == "NGRAM" and _paged(s),
        words=says(
            "ValueError",
            "speculative_eagle_topk(‹branches›) > 1 with page_size({s.kernels.page}) > 1 is unstable and produces "
            "incorrect results for paged attention backends. This combination is only supported for the 'flashinfer' "
            "backend.",
        ),
        fix="speculative_algorithm: EAGLE",
        change=to(speculative_algorithm="EAGLE"),
        source="0.5.9=srt/server_args.py:2489; 0.5.16=srt/arg_groups/speculative_hook.py:710; "
        "0.5.23=srt/arg_groups/speculative_hook.py:1360",
    ),
    Rule(
        id="SP09",
        severity="error",
        condition="drafts given without speculative_num_steps",
        knobs=_PARAMETERS,
        when=_parameters_without_steps,
        words=says("AssertionError"),
        fix="give all three, or none (3, 1, 4)",
        change=to(speculative_num_steps=3, speculative_eagle_topk=1, speculative_num_draft_tokens=4),
        source="0.5.9=srt/server_args.py:2428; 0.5.12=srt/server_args.py:3810; "
        "0.5.16=srt/arg_groups/speculative_hook.py:561; 0.5.23=srt/arg_groups/speculative_hook.py:1152",
    ),
    Rule(
        id="SP10",
        severity="error",
        condition="speculative_num_steps given without speculative_eagle_topk",
        knobs=_PARAMETERS,
        when=_steps_without_topk,
        words=says("TypeError", "'>' not supported between instances of 'NoneType' and 'int'"),
        fix="speculative_eagle_topk: 1",
        change=to(speculative_eagle_topk=1),
        source="0.5.9=srt/server_args.py:2453; 0.5.12=srt/server_args.py:3838; "
        "0.5.16=srt/arg_groups/speculative_hook.py:641; 0.5.23=srt/arg_groups/speculative_hook.py:1275",
    ),
    Rule(
        id="SP11",
        severity="overwritten",
        since=V11,
        condition="adaptive speculation where it is switched off: attention groups, two-batch overlap, several drafts",
        knobs=("speculative_adaptive", "dp_attention", "dp_size", "two_batch_overlap", "speculative_eagle_topk"),
        when=lambda s: s.speculation.adaptive and not s.speculation.adapts,
        words=says("log", "speculative_adaptive disabled: ‹why›. Falling back to static speculative params."),
        fix="speculative_adaptive: false",
        change=without("speculative_adaptive", "speculative_adaptive_config"),
        source="0.5.12=srt/server_args.py:3916; 0.5.16=srt/arg_groups/speculative_hook.py:735; "
        "0.5.23=srt/arg_groups/speculative_hook.py:1381",
    ),
    Rule(
        id="SP12",
        severity="overwritten",
        condition="mixed chunks with speculation, which switches them off (EAGLE keeps them from 0.5.19)",
        knobs=("mixed_chunk", "speculative_algorithm"),
        when=lambda s: s.on("mixed_chunk") and s.speculation.algorithm is not None and not s.mixed_chunk,
        words=(
            Words(V9, "log", "Mixed chunked prefill is disabled because of using eagle speculative decoding."),
            Words(
                V19,
                "log",
                "Mixed chunked prefill is disabled: {s.speculation.algorithm} speculative decoding does not support it.",
            ),
        ),
        fix="mixed_chunk: false",
        change=without("mixed_chunk"),
        source="0.5.9=srt/server_args.py:2394; 0.5.12=srt/server_args.py:3778; "
        "0.5.16=srt/arg_groups/speculative_hook.py:525; 0.5.23=srt/arg_groups/speculative_hook.py:1115",
    ),
    Rule(
        id="SP13",
        severity="advisory",
        until=V10,
        condition="speculation without overlap, which the documents recommend to switch on",
        knobs=("speculative_algorithm", "speculative_overlap"),
        when=lambda s: s.speculation.is_eagle_like and not _asks_overlap(s) and s.parallel.pp == 1,
        words=says(
            "log",
            "Overlap scheduler is disabled when spec v2 is off or using unsupported speculative algorithm. You can set "
            "env SGLANG_ENABLE_SPEC_V2=True to enable the experimental overlap scheduler. ",
        ),
        fix="speculative_overlap: true",
        change=to(speculative_overlap=True),
        source="0.5.9=srt/server_args.py:2386; documents: usage guide, tip under 'Multi-token Prediction'",
    ),
    Rule(
        id="SP14",
        severity="advisory",
        condition="a draft model named, although these models bring their own",
        knobs=("speculative_draft_model",),
        when=lambda s: s.speculation.is_eagle_like and s.asked("speculative_draft_model") and s.model.is_dsa,
        words=says("log", "DeepSeek MTP does not require setting speculative_draft_model_path."),
        fix="leave speculative_draft_model out",
        change=without("speculative_draft_model"),
        source="0.5.9=srt/server_args.py:2420; 0.5.16=srt/arg_groups/speculative_hook.py:555; "
        "0.5.23=srt/arg_groups/speculative_hook.py:1146",
    ),
    Rule(
        id="SP15",
        severity="error",
        since=V13,
        condition="adaptive speculation that starts with steps which its ladder (0, 1, 3, 7; from 0.5.20 5 too) lacks",
        knobs=("speculative_adaptive", "speculative_num_steps"),
        when=_off_the_ladder,
        words=says(
            "ValueError",
            "--speculative-num-steps={s.speculation.steps} is not in the adaptive config candidate_steps ‹a list›. Pass "
            "one of those values.",
        ),
        fix="speculative_num_steps: 3",
        change=to(speculative_num_steps=3, speculative_num_draft_tokens=4),
        source="0.5.13=srt/speculative/adaptive_spec_params.py:137; 0.5.14=srt/arg_groups/speculative_hook.py:505; 0.5.16=srt/arg_groups/speculative_hook.py:755; "
        "0.5.23=srt/arg_groups/speculative_hook.py:1419",
    ),
    Rule(
        id="SP16",
        severity="error",
        since=V11,
        condition="a speculative_adaptive_config that is the configuration itself and no file with it",
        knobs=("speculative_adaptive_config",),
        when=lambda s: s.speculation.adapts and (s.text("speculative_adaptive_config") or "").lstrip().startswith("{"),
        words=(
            Words(V11, "silent", "nothing at launch; the workers end, for no file has that name"),
            Words(V13, "FileNotFoundError", "[Errno 2] No such file or directory: ‹the configuration›"),
        ),
        fix="the path of a JSON file",
        change=without("speculative_adaptive_config"),
        source="0.5.12=srt/speculative/adaptive_spec_params.py:66; 0.5.16=srt/speculative/adaptive_spec_params.py:98; "
        "0.5.23=srt/speculative/adaptive_spec_params.py:52",
    ),
    Rule(
        id="SP17",
        severity="overwritten",
        since=V14,
        condition="adaptive speculation and speculative_num_draft_tokens other than steps + 1",
        knobs=("speculative_adaptive", *_PARAMETERS),
        when=lambda s: _draft_is_corrected(s) and _sets_its_own(s),
        words=says("silent", "speculative_num_draft_tokens becomes {s.speculation.draft_tokens}"),
        fix="leave speculative_num_draft_tokens out",
        change=without("speculative_num_draft_tokens"),
        source="0.5.14=srt/arg_groups/speculative_hook.py:509; 0.5.16=srt/arg_groups/speculative_hook.py:759",
    ),
)
