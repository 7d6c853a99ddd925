"""The canonical names of what can be set on a runtime. Runtimes render them to their own flags and environment.

One name, whatever the installed version calls it (its flags were renamed three times). The config refuses names
that are not listed here; each runtime refuses those that it lacks.
"""

from __future__ import annotations

from dataclasses import dataclass

KnobValue = bool | int | float | str
"""A setting. There is no None: a knob that is not set is not in the mapping, and the runtime's default holds."""


@dataclass(frozen=True, slots=True)
class Knob:
    """One setting: its type, allowed values if they are few or its least one, and one line of meaning."""

    name: str
    type: type
    meaning: str
    choices: tuple[str, ...] = ()
    minimum: int | None = None


KNOBS: dict[str, Knob] = {
    knob.name: knob
    for knob in (
        Knob("kv_cache_dtype", str, "storage of the latent KV cache", ("bfloat16", "fp8_e4m3")),
        Knob(
            "prefill_backend",
            str,
            "sparse attention kernel for prefill",
            ("flashmla_sparse", "flashmla_kv", "flashmla_auto"),
        ),
        Knob("decode_backend", str, "sparse attention kernel for decode", ("flashmla_sparse", "flashmla_kv")),
        Knob(
            "mha_threshold_tokens",
            int,
            "longest sequence whose prefill runs dense MHA instead of sparse attention",
            minimum=0,
        ),
        Knob("chunked_prefill_size", int, "new tokens of prefill per step, at most", minimum=1),
        Knob("max_running_requests", int, "requests in the running batch, at most", minimum=1),
        Knob("max_total_tokens", int, "tokens in the KV pool", minimum=1),
        Knob("context_length", int, "longest sequence served", minimum=1),
        Knob("prefix_cache", bool, "reuse the KV of shared prefixes"),
        Knob("dtype", str, "dtype of weights and activations", ("bfloat16", "float32")),
        Knob("random_seed", int, "seed of random weights and sampling", minimum=0),
        Knob("cpu_threads", int, "threads of the runtime's CPU operators", minimum=1),
    )
}
