"""Which attention backend the model runs on: DSA's own, or one beside it."""

from __future__ import annotations

from dsabench.sglang.rules.rule import V9, V18, Rule, Words, says, without

RULES = (
    Rule(
        id="DT01",
        severity="error",
        condition="deterministic inference on an attention backend that is deterministic elsewhere, but not for these models",
        unreachable="for a DSA model DT02 speaks first",
        words=(
            Words(
                V9,
                "ValueError",
                "Currently only ‹a list› attention backends are supported for deterministic inference with DeepSeek "
                "models. But you're using ‹the backend›.",
            ),
            Words(
                V18,
                "ValueError",
                "Currently only ‹a list› attention backends are supported for deterministic inference with absorbed-MLA "
                "models. But you're using ‹the backend›.",
            ),
        ),
        fix="as DT02",
        source="0.5.9=srt/server_args.py:2768; 0.5.12=srt/server_args.py:4373; 0.5.16=srt/server_args.py:6797; "
        "0.5.23=srt/arg_groups/attention_hook.py:646",
    ),
    Rule(
        id="DT02",
        severity="error",
        condition="deterministic inference on the DSA backend",
        knobs=("deterministic", "attention_backend"),
        when=lambda s: s.on("deterministic") and s.uses_dsa,
        words=says(
            "ValueError",
            "Currently only ‹a list› attention backends are supported for deterministic inference, but you explicitly "
            "specified '{s.prefix}'.",
        ),
        fix="no deterministic inference (fa3 or triton would run, but as dense attention)",
        change=without("deterministic"),
        source="0.5.9=srt/server_args.py:2762; 0.5.12=srt/server_args.py:4367; 0.5.16=srt/arg_groups/overrides.py:1659; "
        "0.5.23=srt/arg_groups/overrides.py:1121",
    ),
    Rule(
        id="DT03",
        severity="advisory",
        condition="an attention backend other than dsa: the indexer is skipped and attention is dense",
        knobs=("attention_backend",),
        when=lambda s: s.model.is_dsa and s.kernels.attention != "dsa",
        words=says("silent", "nothing; no DSA kernel runs"),
        fix="leave attention_backend out",
        change=without("attention_backend"),
        source="0.5.9=srt/layers/attention/nsa_backend.py:1",
    ),
)
