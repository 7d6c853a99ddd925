"""What a server really runs with: from /server_info and its log, and how that differs from what was asked."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from pydantic import JsonValue

from dsabench.model.knobs import ARGS
from dsabench.model.value import KnobValue, value_text
from dsabench.sglang.accepts import Accepted
from dsabench.sglang.render import flag_named
from dsabench.sglang.spellings import FLAGS, Spelling

_COUNTERS = {"internal_states", "startup_time", "kv_events", "launch_command", "frontend"}
"""Entries of /server_info that are no settings."""

_LOG: tuple[tuple[re.Pattern[str], tuple[str, ...]], ...] = (
    (
        re.compile(r"Set (?:NSA|DSA) backends for (\S+) KV Cache: prefill=(\w+), decode=(\w+)"),
        ("kv_cache_dtype", "prefill_backend", "decode_backend"),
    ),
    (
        re.compile(r"Load weight end\. elapsed=([\d.]+) s.*?mem usage=([\d.]+) GB"),
        ("weights_s", "weights_gb"),
    ),
    (
        re.compile(r"KV [Cc]ache (?:is )?allocated\. dtype: (\S+?), #tokens: (\d+),.*?KV size: ([\d.]+) GB"),
        ("kv_dtype", "kv_tokens", "kv_gb"),
    ),
    (
        re.compile(r"(?i)Capture .*?graph end\..*?(?:Time elapsed: |elapsed=)([\d.]+) s.*?mem usage=([\d.]+) GB"),
        ("graphs_s", "graphs_gb"),
    ),
    (re.compile(r"available_gpu_mem=([\d.]+) GB"), ("left_gb",)),
    (
        re.compile(
            r"max_total_num_tokens=(\d+), chunked_prefill_size=(-?\d+), max_prefill_tokens=(\d+), "
            r"max_running_requests=(\d+), context_len=(\d+)"
        ),
        ("max_total_num_tokens", "chunked_prefill_size", "max_prefill_tokens", "max_running_requests", "context_len"),
    ),
)
_TEXTS = {"kv_cache_dtype", "prefill_backend", "decode_backend", "kv_dtype"}
_SAME = {"bf16": "bfloat16", "nsa": "dsa"}
"""Other spellings of one value."""
DIVIDED = ("chunked_prefill_size", "max_running_requests")
"""Settings that DP attention divides among its groups."""
_TOGETHER = {"dp_size": ("attn_dp_size", "dp_size"), "dp_attention": ("enable_dp_attention",)}
_LOGGED = ("kv_cache_dtype", "prefill_backend", "decode_backend", "chunked_prefill_size", "max_running_requests")
"""Knobs that the log tells more truly than /server_info, which may repeat what was asked."""


def settings_of(info: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """The settings of /server_info, without what is empty or off, and without counters."""
    return {
        name: value
        for name, value in info.items()
        if name not in _COUNTERS and value is not None and value is not False and value not in ([], {}, "")
    }


def facts_in(log: str) -> dict[str, JsonValue]:
    """What the boot's log says of kernels, memory and limits; of several ranks or models the first."""
    facts: dict[str, JsonValue] = {}
    for pattern, names in _LOG:
        match = pattern.search(log)
        if match is None:
            continue
        for name, text in zip(names, match.groups(), strict=True):
            facts[name] = text if name in _TEXTS else float(text) if "." in text else int(text)
    return facts


def differences(
    knobs: Mapping[str, KnobValue], info: Mapping[str, JsonValue], facts: Mapping[str, JsonValue], accepted: Accepted
) -> dict[str, str]:
    """Knob → a line, for each that runs otherwise than asked."""
    return dict(_differ(knobs, info, facts, accepted))


def fields_of_knobs(accepted: Accepted, argv: Sequence[str] = ()) -> frozenset[str]:
    """The fields of /server_info that say what some knob is, and what the flags of a command line became."""
    words = {word for spellings in FLAGS.values() for one in spellings for word in (*one.flags, *one.off.split())}
    told = {accepted.flags[word].dest for word in (*words, *argv) if word in accepted.flags}
    return frozenset(told.union(*_TOGETHER.values()))


def runs_as(
    name: str, info: Mapping[str, JsonValue], facts: Mapping[str, JsonValue], accepted: Accepted
) -> JsonValue | None:
    """What the server says a knob is; None where it does not say."""
    return _told(name, info, facts, accepted)[1]


def resolved_knobs(names: Iterable[str], info: Mapping[str, JsonValue], accepted: Accepted) -> dict[str, JsonValue]:
    """Those of the knobs that the server tells of, with what they are."""
    told = {name: _told(name, info, {}, accepted) for name in names}
    return {name: value for name, (known, value) in told.items() if known and value is not None}


def _differ(
    knobs: Mapping[str, KnobValue], info: Mapping[str, JsonValue], facts: Mapping[str, JsonValue], accepted: Accepted
) -> Iterator[tuple[str, str]]:
    for name, asked in knobs.items():
        known, runs = _told(name, info, facts, accepted)
        same = _same_argument if name.startswith(ARGS) else _equal
        if known and asked != "auto" and not same(asked, runs):
            yield name, f"{name}: asked {_shown(asked)}, runs with {_shown(runs)}{_per_rank(name, runs, knobs)}"


def _per_rank(name: str, runs: JsonValue, knobs: Mapping[str, KnobValue]) -> str:
    """Where it is only divided: DP attention reads what was asked as that of all its groups together."""
    asked, groups = knobs.get(name), knobs.get("dp_size")
    if knobs.get("dp_attention") is not True or name not in DIVIDED or not isinstance(groups, int) or groups < 2:
        return ""
    if not isinstance(asked, int) or runs != asked // groups:
        return ""
    return f" per rank (asked ÷ {groups} groups of the attention)"


def _told(
    name: str, info: Mapping[str, JsonValue], facts: Mapping[str, JsonValue], accepted: Accepted
) -> tuple[bool, JsonValue]:
    """Whether the server says what a knob is, and what."""
    if name in _LOGGED and name in facts:
        return True, facts[name]
    if name in _TOGETHER:
        return _told_together(name, info)
    if name.startswith(ARGS):
        flag = flag_named(name.removeprefix(ARGS), accepted)
        dest = "" if flag is None else accepted.flags[flag].dest
        return dest in info, info.get(dest)
    for spelling in FLAGS.get(name, ()):
        if not all(flag in accepted.flags for flag in spelling.flags):
            continue
        if spelling.is_switch and spelling.off.count(" "):
            return _told_in_words(spelling, info, accepted)
        if len(set(spelling.flags)) == 1:
            dest = accepted.flags[spelling.flags[0]].dest
            return dest in info, _canonical(spelling, info.get(dest))
    return False, None


def _told_together(name: str, info: Mapping[str, JsonValue]) -> tuple[bool, JsonValue]:
    """Of the knobs of DP attention. From 0.5.22 on its size says it, and the switch stays off."""
    groups = info.get("attn_dp_size")
    if name == "dp_attention" and isinstance(groups, int) and groups > 1:
        return True, True
    keys = [key for key in _TOGETHER[name] if info.get(key) is not None]
    return bool(keys), info.get(keys[0]) if keys else None


def _told_in_words(spelling: Spelling, info: Mapping[str, JsonValue], accepted: Accepted) -> tuple[bool, JsonValue]:
    """Of a switch that is turned off by values (`--cuda-graph-backend-decode disabled …`): off where all have them."""
    words = spelling.off.split()
    wanted = {accepted.flags[flag].dest: value for flag, value in zip(words[::2], words[1::2], strict=True)}
    known = all(info.get(dest) is not None for dest in wanted)
    return known, any(info.get(dest) != value for dest, value in wanted.items())


def _canonical(spelling: Spelling, value: JsonValue) -> JsonValue:
    """What an argument's value means for the knob: a switch that turns off is true when the knob is false."""
    if spelling.is_switch:
        return not value if spelling.off else bool(value)
    for name, texts in spelling.values.items():
        if value in texts:
            return name
    return value


def _equal(asked: KnobValue, runs: JsonValue) -> bool:
    if isinstance(asked, bool) or isinstance(runs, bool):
        return asked is runs
    if isinstance(asked, int | float) and isinstance(runs, int | float):
        return abs(float(asked) - float(runs)) <= 1e-9 * max(abs(float(asked)), 1.0)
    left, right = str(asked).lower(), str(runs).lower().removeprefix("torch.")
    return _SAME.get(left, left) == _SAME.get(right, right)


def _same_argument(asked: KnobValue, runs: JsonValue) -> bool:
    """Whether it runs as asked. Lists are asked for in words; what the runtime makes of other texts is its own form."""
    if isinstance(runs, list):
        return str(asked).split() == [str(one) for one in runs]
    if isinstance(asked, str) and isinstance(runs, dict):
        return True
    return _equal(asked, runs)


def _shown(value: object) -> str:
    return "nothing" if value is None else value_text(value)
