"""Canonical knobs → flags and environment of one version. Nothing that the version lacks or drops passes in silence."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from dsabench.model.knobs import ARGS, KNOBS
from dsabench.model.value import KnobValue
from dsabench.runtimes.plan import PlanRemark
from dsabench.sglang.accepts import Accepted
from dsabench.sglang.arguments import text_of, words_of
from dsabench.sglang.phrases import PHRASES, Phrase
from dsabench.sglang.spellings import FLAGS, FOREIGN, VARIABLES, Spelling

_FORCE_MLA = "SGLANG_NSA_FORCE_MLA"
_INDEX_TOPK = 2048


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
    spelling = _best(spellings, accepted)
    if spelling is None:
        if spellings[0].is_switch and value is not bool(spellings[0].on):
            return Phrase()  # it asks for what a version without the switch does anyway
        return _lack(name, f"sglang {accepted.release} has no {spellings[0].flags[0]}")
    if not spelling.is_switch:
        return _with_value(name, value, spelling, accepted)
    words = tuple((spelling.on if value else spelling.off).split())
    if any(accepted.flags[word].state == "no-op" for word in words if word in accepted.flags):
        message = f"sglang {accepted.release} accepts {words[0]} and does nothing with it; it is left out"
        return Phrase(remarks=(PlanRemark("VS03", "overwritten", name, message),))
    return Phrase(words)


def _best(spellings: tuple[Spelling, ...], accepted: Accepted) -> Spelling | None:
    """The newest spelling that works; a no-op only where nothing else is left."""
    for states in ({"real"}, {"alias"}, {"no-op"}):
        for spelling in spellings:
            flags = [accepted.flags.get(flag) for flag in spelling.flags]
            if all(flag is not None and flag.state in states for flag in flags):
                return spelling
    return None


def _with_value(name: str, value: KnobValue, spelling: Spelling, accepted: Accepted) -> Phrase:
    flag = spelling.flags[0]
    taken = accepted.flags[flag].choices
    names = spelling.values.get(str(value), (text_of(value),))
    text = next((word for word in names if not taken or word in taken), None)
    if text is None:
        message = f"sglang {accepted.release} does not take {text_of(value)} for {flag}"
        return Phrase(remarks=(PlanRemark("FL04", "error", name, message, f"it takes {', '.join(taken)}"),))
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
    return Phrase(remarks=(PlanRemark(rule, "error", name, message, fix),))


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
