"""Canonical knobs → flags and environment of one version. Nothing that the version lacks or drops passes in silence."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

from dsabench.errors import nearest
from dsabench.model.knobs import ARGS, KNOBS
from dsabench.model.value import KnobValue
from dsabench.runtimes.plan import PlanRemark, Severity
from dsabench.sglang.accepts import Accepted
from dsabench.sglang.model_config import json_object
from dsabench.sglang.spellings import FLAGS, FOREIGN, VARIABLES, Spelling
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
    "prefill_delayer_queue_min_ratio": "prefill_delayer",
    "prefill_delayer_max_delay_ms": "prefill_delayer_queue_min_ratio",
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
_FORCE_MLA = "SGLANG_NSA_FORCE_MLA"
_INDEX_TOPK = 2048

FLAGS_OF_PHRASES = {
    "--dp-size": "dp_size",
    "--attn-dp-size": "dp_size",
    "--enable-dp-attention": "dp_attention",
    "--json-model-override-args": "model_overrides",
}
"""Flag → the knob that says it here."""

PLACES = frozenset(
    {
        *("model_path", "host", "port", "nnodes", "node_rank", "dist_init_addr", "base_gpu_id", "config", "device"),
        *("disaggregation_mode", "disaggregation_bootstrap_port"),
    }
)
"""Destinations that a config says elsewhere: the model, and which process runs where."""

KNOB_OF_FLAG: Mapping[str, str] = {
    **FLAGS_OF_PHRASES,
    **{
        flag: knob
        for knob, spellings in FLAGS.items()
        for spelling in spellings
        for flag in spelling.flags
        # `--cuda-graph-backend-decode disabled` is the knob; with other values it is an argument.
        if " " not in spelling.on + spelling.off
    },
}
"""Flag → the knob that says it."""


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
        given = json_object(str(text))
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


PHRASES = (needs, data_parallel, speculative_overlap, model_overrides, hisparse_config)


def words_of(name: str, value: KnobValue, accepted: Accepted) -> Phrase:
    """The words of `args.NAME`, or why the version does not take it."""
    plain = name.removeprefix(ARGS)
    flag = flag_named(plain, accepted)
    if flag is None:
        near = nearest(plain, (one.dest for one in accepted.flags.values()))
        fix = f"did you mean {near}?" if near else ""
        return _remark("VS01", name, f"sglang {accepted.release} has no --{plain.replace('_', '-')}", fix)
    if elsewhere := _said_elsewhere(flag, value, accepted):
        return _remark("VS08", name, *elsewhere)
    form = accepted.flags[flag]
    if form.state == "no-op":
        return _does_nothing(name, flag, accepted)
    return (_switch if form.takes == "nothing" else _valued)(name, flag, value, accepted)


def _valued(name: str, flag: str, value: KnobValue, accepted: Accepted) -> Phrase:
    form = accepted.flags[flag]
    texts = [text_of(value)] if form.takes == "value" else text_of(value).split()
    for text in texts:
        if form.choices and text not in form.choices:
            return _not_taken(name, text, flag, accepted)
    if form.takes == "value" and re.match(r"-\D", texts[0]):
        return Phrase((f"{flag}={texts[0]}",))  # it would be read as a flag
    return Phrase((flag, *texts))


def flag_named(name: str, accepted: Accepted) -> str | None:
    """The flag of an argument: by its own name, else by where the parser puts it."""
    said = f"--{name.replace('_', '-')}"
    if said in accepted.flags:
        return said
    return next((flag for flag, form in accepted.flags.items() if form.dest == name), None)


def knob_of(flag: str, accepted: Accepted) -> str | None:
    """The knob that says a flag, or another spelling of it; also of a flag that the version does not have."""
    form = accepted.flags.get(flag)
    # A switch may stand for one value of what others set.
    if flag in KNOB_OF_FLAG or form is None or form.takes == "nothing":
        return KNOB_OF_FLAG.get(flag)
    others = (name for name, one in accepted.flags.items() if one.dest == form.dest and one.takes != "nothing")
    return next((KNOB_OF_FLAG[name] for name in others if name in KNOB_OF_FLAG), None)


def text_of(value: KnobValue) -> str:
    """A value as a command line has it: 3600.0 is 3600, true is true."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def spelling_of(knob: str, flag: str) -> Spelling | None:
    """The knob's spelling with that flag; the newest where the flag is another name of it."""
    spellings = FLAGS.get(knob, ())
    return next((one for one in spellings if flag in one.flags), spellings[0] if spellings else None)


def canonical_text(spelling: Spelling | None, text: str) -> str:
    """The knob's own name of a value that a version calls otherwise."""
    values = {} if spelling is None else spelling.values
    return next((name for name, texts in values.items() if text in texts), text)


def knob_value(knob: str, text: str) -> KnobValue | None:
    """A text of a command line as the knob's value; None where the knob does not have this one."""
    wanted = KNOBS[knob]
    if wanted.type is bool:
        return {"1": True, "true": True, "0": False, "false": False}.get(text.lower())
    if wanted.choices:
        return text if text in wanted.choices else None
    try:
        value: KnobValue = wanted.type(text)
    except ValueError:
        return None
    is_low = wanted.minimum is not None and not isinstance(value, str) and value < wanted.minimum
    return None if is_low else value


def _said_elsewhere(flag: str, value: KnobValue, accepted: Accepted) -> tuple[str, str] | None:
    """What is wrong with a flag that a knob or the place of a process says, and what to do."""
    dest = accepted.flags[flag].dest
    if dest in PLACES:
        return (
            "dsabench sets it",
            "model, hosts and ports stand under runtime.model, runtime.topology and runtime.launch",
        )
    knob = knob_of(flag, accepted)
    if knob is None:
        return None
    text = canonical_text(spelling_of(knob, flag), text_of(value))
    if accepted.flags[flag].takes != "nothing" and knob_value(knob, text) is None:
        return None  # a value that the knob does not have
    return (f"is the knob {knob}", f"write {knob} beside the other knobs")


def _switch(name: str, flag: str, value: KnobValue, accepted: Accepted) -> Phrase:
    if not isinstance(value, bool):
        return _remark("FL04", name, f"{flag} is a switch", "it takes true or false")
    other = f"--no-{flag.removeprefix('--')}"
    if value:
        return Phrase((flag,))
    return Phrase((other,)) if other in accepted.flags else Phrase()


def _does_nothing(name: str, flag: str, accepted: Accepted) -> Phrase:
    message = f"sglang {accepted.release} accepts {flag} and does nothing with it; it is left out"
    return _remark("VS03", name, message, severity="overwritten")


def _not_taken(name: str, text: str, flag: str, accepted: Accepted) -> Phrase:
    message = f"sglang {accepted.release} does not take {text} for {flag}"
    return _remark("FL04", name, message, f"it takes {', '.join(accepted.flags[flag].choices)}")


def _remark(rule: str, name: str, message: str, fix: str = "", *, severity: Severity = "error") -> Phrase:
    return Phrase(remarks=(PlanRemark(rule, severity, name, message, fix),))


@dataclass(frozen=True, slots=True)
class Rendered:
    """What follows the model on the command line, the variables to set, and every reservation."""

    words: tuple[str, ...]
    env: Mapping[str, str]
    remarks: tuple[PlanRemark, ...]


def render(knobs: Mapping[str, KnobValue], env: Mapping[str, str], accepted: Accepted) -> Rendered:
    """Knobs in the order of `KNOBS`, so that equal settings give equal commands."""
    phrases = [_phrase(name, knobs[name], accepted) for name in KNOBS if name in knobs]
    phrases += [phrase(knobs, accepted) for phrase in PHRASES]
    arguments = {name: words_of(name, knobs[name], accepted) for name in sorted(knobs) if name.startswith(ARGS)}
    twice = [*_said_twice(phrases, arguments, accepted)]
    phrases += arguments.values()
    said: dict[str, str] = {}
    for phrase in phrases:
        said |= phrase.env
    remarks = [remark for phrase in phrases for remark in phrase.remarks]
    remarks += [*twice, *_absent_flags(phrases, accepted)]
    remarks += _env_remarks(env, said, accepted)
    words = tuple(word for phrase in phrases for word in phrase.words)
    return Rendered(words, {**env, **said}, tuple(remarks))


def _phrase(name: str, value: KnobValue, accepted: Accepted) -> Phrase:
    if name in FLAGS:
        return _flag(name, value, accepted)
    if name in VARIABLES:
        return _variable(name, value, accepted)
    if name in FOREIGN:
        return _lack(name, "a setting of the reference runtime, which sglang does not take from here")
    return Phrase()


def _flag(name: str, value: KnobValue, accepted: Accepted) -> Phrase:
    spellings = FLAGS[name]
    spelling = best_spelling(spellings, accepted)
    if spelling is None:
        if spellings[0].is_switch and value is not bool(spellings[0].on):
            return Phrase()  # it asks for what a version without the switch does anyway
        return _lack(name, f"sglang {accepted.release} has no {spellings[0].flags[0]}")
    if not spelling.is_switch:
        return _with_value(name, value, spelling, accepted)
    words = tuple((spelling.on if value else spelling.off).split())
    if any(accepted.flags[word].state == "no-op" for word in words if word in accepted.flags):
        return _does_nothing(name, words[0], accepted)
    return Phrase(words)


def best_spelling(spellings: tuple[Spelling, ...], accepted: Accepted) -> Spelling | None:
    """The newest spelling that works; a no-op only where nothing else is left."""
    for states in ({"real"}, {"alias"}, {"no-op"}):
        for spelling in spellings:
            flags = [accepted.flags.get(flag) for flag in spelling.flags]
            if all(flag is not None and flag.state in states for flag in flags) and _takes(spelling.on, accepted):
                return spelling
    return None


def _takes(words: str, accepted: Accepted) -> bool:
    """Whether each value in the words of a switch is one that its flag has."""
    pairs = pairwise(words.split())
    return all(
        not (choices := accepted.flags[flag].choices) or value in choices
        for flag, value in pairs
        if flag.startswith("--") and not value.startswith("--")
    )


def _with_value(name: str, value: KnobValue, spelling: Spelling, accepted: Accepted) -> Phrase:
    flag = spelling.flags[0]
    taken = accepted.flags[flag].choices
    names = spelling.values.get(str(value), (text_of(value),))
    text = next((word for word in names if not taken or word in taken), None)
    if text is None:
        return _not_taken(name, text_of(value), flag, accepted)
    return Phrase((flag, text))


def _variable(name: str, value: KnobValue, accepted: Accepted) -> Phrase:
    variable = next((known for known in VARIABLES[name] if known in accepted.variables), None)
    text = str(int(value)) if isinstance(value, bool) else text_of(value)
    if variable is not None:
        return Phrase(env={variable: text})
    if name == "mha_threshold_tokens":
        return _fixed_threshold(value, accepted)
    return _lack(name, f"sglang {accepted.release} reads no {VARIABLES[name][0]}")


def _fixed_threshold(value: KnobValue, accepted: Accepted) -> Phrase:
    """0.5.9 has index_topk built in, and a variable that turns dense prefill off."""
    if value == 0 and _FORCE_MLA in accepted.variables:
        return Phrase(env={_FORCE_MLA: "1"})
    if value == _INDEX_TOPK:
        return Phrase()
    message = f"sglang {accepted.release} has index_topk built in as the threshold"
    return _lack("mha_threshold_tokens", message, f"take 0 or {_INDEX_TOPK}, or sglang 0.5.10 or later")


def _lack(name: str, message: str, fix: str = "") -> Phrase:
    rule = "FL03" if name == "hisparse" else "VS01"
    return _remark(rule, name, message, fix)


def _said_twice(phrases: list[Phrase], arguments: Mapping[str, Phrase], accepted: Accepted) -> Iterator[PlanRemark]:
    """A knob and an argument that set the same."""
    words = [word for phrase in phrases for word in phrase.words]
    said = {accepted.flags[word].dest for word in words if word in accepted.flags}
    for name, phrase in arguments.items():
        if any(accepted.flags[word].dest in said for word in phrase.words if word in accepted.flags):
            yield PlanRemark("VS06", "error", name, "is set in args, and by a knob as well", "drop one of them")


def _absent_flags(phrases: list[Phrase], accepted: Accepted) -> Iterator[PlanRemark]:
    """Phrases do not look at the flags themselves."""
    words = (word.partition("=")[0] for phrase in phrases for word in phrase.words if word.startswith("--"))
    for word in words:
        if word not in accepted.flags:
            yield PlanRemark("VS01", "error", word, f"sglang {accepted.release} has no such flag")


def _env_remarks(env: Mapping[str, str], said: Mapping[str, str], accepted: Accepted) -> Iterator[PlanRemark]:
    for name in env:
        renamed = name.replace("SGLANG_NSA_", "SGLANG_DSA_")
        if name in said:
            yield PlanRemark("VS06", "error", name, "is set in env, and by a knob as well", "drop one of them")
        elif not name.startswith("SGLANG_") or name in accepted.variables:
            continue
        elif renamed in accepted.variables:
            yield PlanRemark(
                "VS04", "error", name, f"sglang {accepted.release} does not read it", f"it is {renamed} now"
            )
        else:
            yield PlanRemark("VS04", "advisory", name, f"sglang {accepted.release} does not read it")
