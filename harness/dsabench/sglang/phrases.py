"""Knobs that a version says together, or in a way that depends on more than its flags."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from dsabench.model.value import KnobValue
from dsabench.runtimes.plan import PlanRemark
from dsabench.sglang.accepts import Accepted
from dsabench.sglang.versions import Version

Knobs = Mapping[str, KnobValue]


@dataclass(frozen=True, slots=True)
class Phrase:
    """Words and variables for one or more knobs, and what is to be said about them."""

    words: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    remarks: tuple[PlanRemark, ...] = ()


_NEEDS = {
    **dict.fromkeys(("speculative_num_steps", "speculative_eagle_topk"), "speculative_algorithm"),
    **dict.fromkeys(("speculative_num_draft_tokens", "speculative_overlap"), "speculative_algorithm"),
    **dict.fromkeys(("speculative_adaptive", "speculative_draft_model"), "speculative_algorithm"),
    **dict.fromkeys(("simulated_accept_length",), "speculative_algorithm"),
    "speculative_adaptive_config": "speculative_adaptive",
    "cp_mode": "prefill_cp",
    "dp_attention": "dp_size",
    **dict.fromkeys(("hisparse_top_k", "hisparse_device_buffer_size"), "hisparse"),
    **dict.fromkeys(("hisparse_host_to_device_ratio", "hisparse_swap_in_block_size"), "hisparse"),
}
"""Knob → the one without which nothing reads it."""

HISPARSE_KEYS = {
    "hisparse_top_k": "top_k",
    "hisparse_device_buffer_size": "device_buffer_size",
    "hisparse_host_to_device_ratio": "host_to_device_ratio",
    "hisparse_swap_in_block_size": "swap_in_block_size",
}
_SWAP_IN_SINCE = Version(0, 5, 15)
_PATTERN_SINCE = Version(0, 5, 10)
_SPEC_V2_UNTIL = Version(0, 5, 13)
_SPEC_V2 = "SGLANG_ENABLE_SPEC_V2"


def needs(knobs: Knobs, _: Accepted) -> Phrase:
    """No words, but a remark on settings that nothing will read."""
    idle = [name for name in _NEEDS if knobs.get(name) not in {None, False} and not knobs.get(_NEEDS[name])]
    return Phrase(
        remarks=tuple(
            PlanRemark(
                "VS07",
                "overwritten",
                name,
                f"nothing reads it without {_NEEDS[name]}",
                f"set {_NEEDS[name]}, or drop it",
            )
            for name in idle
        )
    )


def data_parallel(knobs: Knobs, accepted: Accepted) -> Phrase:
    """`--attn-dp-size N` where the version has it (0.5.22), else `--dp-size N --enable-dp-attention`."""
    size, attention = knobs.get("dp_size"), knobs.get("dp_attention") is True
    if attention and "--attn-dp-size" in accepted.flags:
        return Phrase(("--attn-dp-size", str(1 if size is None else size)))
    words = () if size is None else ("--dp-size", str(size))
    return Phrase((*words, "--enable-dp-attention") if attention else words)


def speculative_overlap(knobs: Knobs, accepted: Accepted) -> Phrase:
    """A variable up to 0.5.13 (opt-in until 0.5.10), the scheduler's own switch from 0.5.14 on."""
    wanted = knobs.get("speculative_overlap")
    if wanted is None or "speculative_algorithm" not in knobs:
        return Phrase()
    if wanted is True and knobs.get("overlap_schedule") is False:
        message = "speculation overlaps only where scheduling does"
        return Phrase(
            remarks=(PlanRemark("VS06", "error", "speculative_overlap", message, "drop overlap_schedule: false"),)
        )
    if accepted.version <= _SPEC_V2_UNTIL:
        return Phrase(env={_SPEC_V2: "1" if wanted else "0"})
    already = knobs.get("overlap_schedule") is False
    return Phrase(() if wanted or already else ("--disable-overlap-schedule",))


def model_overrides(knobs: Knobs, accepted: Accepted) -> Phrase:
    """One JSON argument for `model_overrides` and the IndexCache pattern."""
    remarks: list[PlanRemark] = []
    merged: dict[str, object] = {}
    text = knobs.get("model_overrides")
    if text is not None:
        given = _json_object(str(text))
        if given is None:
            remarks.append(PlanRemark("VS05", "error", "model_overrides", "must be a JSON object"))
        merged |= given or {}
    pattern = knobs.get("index_topk_pattern")
    if pattern is not None:
        if accepted.version < _PATTERN_SINCE:
            message = f"sglang {accepted.release} ignores it: every layer computes its own indexer"
            remarks.append(
                PlanRemark("VS02", "error", "index_topk_pattern", message, f"take {_PATTERN_SINCE} or later")
            )
        if merged.get("index_topk_pattern", pattern) != pattern:
            message = "model_overrides names another pattern"
            remarks.append(PlanRemark("VS06", "error", "index_topk_pattern", message, "drop one of them"))
        merged["index_topk_pattern"] = pattern
    words = ("--json-model-override-args", json.dumps(merged)) if merged else ()
    return Phrase(words, remarks=tuple(remarks))


def hisparse_config(knobs: Knobs, accepted: Accepted) -> Phrase:
    """The JSON argument of HiSparse."""
    given = {key: knobs[knob] for knob, key in HISPARSE_KEYS.items() if knob in knobs}
    if not given or knobs.get("hisparse") is not True or "--hisparse-config" not in accepted.flags:
        return Phrase()  # said of hisparse already
    remarks: list[PlanRemark] = []
    if "swap_in_block_size" in given and accepted.version < _SWAP_IN_SINCE:
        message = f"sglang {accepted.release} ignores it: the kernel's block size is fixed"
        fix = f"take {_SWAP_IN_SINCE} or later"
        remarks.append(PlanRemark("VS02", "error", "hisparse_swap_in_block_size", message, fix))
    return Phrase(("--hisparse-config", json.dumps(given)), remarks=tuple(remarks))


def _json_object(text: str) -> dict[str, object] | None:
    try:
        value = json.loads(text)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


PHRASES = (needs, data_parallel, speculative_overlap, model_overrides, hisparse_config)

FLAGS_OF_PHRASES = {
    "--dp-size": "dp_size",
    "--attn-dp-size": "dp_size",
    "--enable-dp-attention": "dp_attention",
    "--json-model-override-args": "model_overrides",
}
"""Flag → the knob that says it here."""
