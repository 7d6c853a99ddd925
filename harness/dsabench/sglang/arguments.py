"""Arguments under sglang's own names, where no knob says them: `args.hicache_ratio` → `--hicache-ratio`."""

from __future__ import annotations

import re
from collections.abc import Mapping

from dsabench.errors import nearest
from dsabench.model.knobs import ARGS, KNOBS
from dsabench.model.value import KnobValue
from dsabench.runtimes.plan import PlanRemark, Severity
from dsabench.sglang.accepts import Accepted
from dsabench.sglang.phrases import FLAGS_OF_PHRASES, Phrase
from dsabench.sglang.spellings import FLAGS, Spelling

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
        message = f"sglang {accepted.release} accepts {flag} and does nothing with it; it is left out"
        return _remark("VS03", name, message, severity="overwritten")
    return (_switch if form.takes == "nothing" else _valued)(name, flag, value, accepted)


def _valued(name: str, flag: str, value: KnobValue, accepted: Accepted) -> Phrase:
    form = accepted.flags[flag]
    texts = [text_of(value)] if form.takes == "value" else text_of(value).split()
    for text in texts:
        if form.choices and text not in form.choices:
            message = f"sglang {accepted.release} does not take {text} for {flag}"
            return _remark("FL04", name, message, f"it takes {', '.join(form.choices)}")
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
    """The knob that says a flag, or another spelling of it."""
    form = accepted.flags[flag]
    if flag in KNOB_OF_FLAG or form.takes == "nothing":  # a switch may stand for one value of what others set
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


def _remark(rule: str, name: str, message: str, fix: str = "", *, severity: Severity = "error") -> Phrase:
    return Phrase(remarks=(PlanRemark(rule, severity, name, message, fix),))
