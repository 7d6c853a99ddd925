"""A launch command that somebody wrote, as settings: knobs where there are any, arguments, variables, roles.

Shells' own words (`export`, `docker run`, variables that are not set) are not carried out. What is left out is said.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from dsabench.errors import InputError
from dsabench.model.knobs import ARGS, argument_name, argument_value
from dsabench.model.runtime import RuntimeSpec
from dsabench.model.secrets import BEHAVIOUR_PREFIX, looks_secret
from dsabench.model.topology import Role, RoleName, Topology
from dsabench.model.value import KnobValue
from dsabench.sglang.accepts import Accepted, Flag, flags_of_release, known_versions
from dsabench.sglang.model_config import json_object
from dsabench.sglang.render import (
    HISPARSE_KEYS,
    PLACES,
    best_spelling,
    canonical_text,
    knob_of,
    knob_value,
    spelling_of,
)
from dsabench.sglang.spellings import FLAGS, VARIABLES

_ENDS = re.compile(r"\d?>{1,2}\S*|[|;&\n]+")
"""Words that end a command."""
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
_HERE = {
    "CUDA_VISIBLE_DEVICES",
    "HF_HOME",
    "HF_HUB_CACHE",
    "PYTHONPATH",
    "PATH",
    "LD_LIBRARY_PATH",
    "CUDA_HOME",
    "TMPDIR",
}
"""Variables about one machine: a config has them under runtime.launch.env."""
_QUOTES = str.maketrans("“”„‘’", '"""\'\'')
_DP_ATTENTION = "--attn-dp-size"


@dataclass
class ReadCommand:
    """The settings of a command, and what of it has no place in them."""

    model: str = ""
    knobs: dict[str, KnobValue] = field(default_factory=dict)
    """With `args.NAME` for what is no knob."""
    env: dict[str, str] = field(default_factory=dict)
    role: RoleName = "server"
    nodes: int = 1
    left_out: list[str] = field(default_factory=list)
    """A line each."""
    places: list[str] = field(default_factory=list)
    """Flags that say where it runs."""

    @property
    def remarks(self) -> tuple[str, ...]:
        """What was left out, and what is still to be filled in, a line each."""
        texts = {"model": self.model, **self.knobs, **self.env}
        shell = [
            f"{name} holds a variable of the shell; write its value" for name, text in texts.items() if _is_shell(text)
        ]
        places = [f"left out, for dsabench chooses it or runtime.launch.sites says it: {', '.join(self.places)}"]
        return (*places * bool(self.places), *(f"left out: {line}" for line in self.left_out), *shell)

    def spec(self, hardware: str | None) -> RuntimeSpec:
        """As dsabench launches it."""
        alone = self.role == "server" and self.nodes == 1
        topology = None if alone else Topology(roles=(Role(role=self.role, nodes=self.nodes),))
        return RuntimeSpec(
            kind="sglang", model=self.model, knobs=self.knobs, env=self.env, hardware=hardware, topology=topology
        )


def read_command(text: str, accepted: Accepted) -> ReadCommand:
    """Read one `python -m sglang.launch_server …` or `sglang serve …`.

    Raises:
        InputError: no such command, an open quote, no model, or a flag without its value.

    """
    before, words = _split(text)
    found = ReadCommand()
    for word in before:
        _variable(found, word)
    for flag, values in _flags(words, accepted, found):
        _take(found, flag, values, accepted)
    _join_words(found, accepted)
    if not found.model:
        raise InputError("the command names no model: --model-path is missing")
    return found


def _split(text: str) -> tuple[list[str], list[str]]:
    """Words before the program, and those behind it, as far as the command goes."""
    plain = text.translate(_QUOTES).replace("\r\n", "\n")
    plain = re.sub(r"\\[ \t]*\n|\n\s*(?=--)", " ", plain)  # the second: a lost backslash
    lexer = shlex.shlex(plain, posix=True, punctuation_chars=";&|\n")
    lexer.whitespace, lexer.whitespace_split, lexer.commenters = " \t", True, "#"
    try:
        words = list(lexer)
    except ValueError as error:
        raise InputError(f"the command cannot be read: {str(error).lower()}") from error
    for index, word in enumerate(words):
        serves = word.rpartition("/")[2] == "sglang" and words[index + 1 : index + 2] == ["serve"]
        if word == "sglang.launch_server" or word.endswith("sglang/launch_server.py") or serves:
            behind = words[index + 1 + serves :]
            end = next((at for at, one in enumerate(behind) if _ENDS.fullmatch(one)), len(behind))
            return words[:index], behind[:end]
    raise InputError("the command has neither sglang.launch_server nor sglang serve")


def _variable(found: ReadCommand, word: str) -> None:
    match = _ASSIGNMENT.fullmatch(word)
    if match is None:
        if word in {"docker", "podman", "enroot", "srun", "ssh", "numactl"}:
            found.left_out.append(f"{word}: how it is started stands under runtime.launch (container, command_prefix)")
        return
    name, value = match[1], match[2]
    if looks_secret(name):
        found.left_out.append(f"{name}: looks like a secret; set it in runtime.launch.env")
    elif name in _HERE:
        found.left_out.append(f"{name}: is about one machine; set it in runtime.launch.env")
    elif knob := next((knob for knob, names in VARIABLES.items() if name in names), None):
        typed = knob_value(knob, value)
        found.knobs |= {} if typed is None else {knob: typed}
        found.env |= {name: value} if typed is None else {}
    else:
        found.env[name] = value


def _flags(words: list[str], accepted: Accepted, found: ReadCommand) -> Iterator[tuple[str, list[str]]]:
    """Each flag under its full name, with its values."""
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if not word.startswith("--"):
            if found.model or word.startswith("-"):
                found.left_out.append(f"{word}: belongs to no flag")
            else:
                found.model = word  # `sglang serve MODEL`
            continue
        name, equals, value = word.partition("=")
        flag = accepted.expand(name) or name
        takes = _form(flag, accepted, rest).takes
        values = [value] if equals else []
        while takes != "nothing" and rest and not rest[0].startswith("--") and (takes == "values" or not values):
            values.append(rest.pop(0))
        if takes != "nothing" and not values:
            raise InputError(f"{name} needs a value")
        yield flag, values


def _form(flag: str, accepted: Accepted, rest: list[str]) -> Flag:
    """What is known of the flag, here or in the newest version that has it; else what follows decides."""
    if flag in accepted.flags:
        return accepted.flags[flag]
    for version in reversed(known_versions()):
        if (form := flags_of_release(str(version)).flags.get(flag)) is not None:
            return form
    return Flag(argument_name(flag), "values" if rest and not rest[0].startswith("--") else "nothing")


def _take(found: ReadCommand, flag: str, values: list[str], accepted: Accepted) -> None:
    dest = accepted.flags[flag].dest if flag in accepted.flags else argument_name(flag)
    text = " ".join(values)
    if dest in PLACES or dest == "model":
        _place(found, flag, dest, text)
    elif looks_secret(BEHAVIOUR_PREFIX + dest):
        found.left_out.append(f"{flag}: looks like a secret, and arguments are recorded")
    else:
        found.knobs |= _setting(flag, dest, values, accepted)


def _place(found: ReadCommand, flag: str, dest: str, text: str) -> None:
    if dest in {"model_path", "model"}:
        found.model = text
    elif dest == "nnodes" and text.isdecimal():
        found.nodes = max(1, int(text))
    elif dest == "disaggregation_mode" and text in {"prefill", "decode"}:
        found.role = "prefill" if text == "prefill" else "decode"
    elif dest in {"host", "port", "dist_init_addr", "node_rank", "disaggregation_bootstrap_port"}:
        found.places.append(f"{flag} {text}")
    elif dest != "device" or text != "cuda":
        found.left_out.append(f"{flag} {text}: has no place in a config")


def _setting(flag: str, dest: str, values: list[str], accepted: Accepted) -> Mapping[str, KnobValue]:
    """A knob and its value; an argument where there is none, or where the knob does not have the value."""
    if flag == _DP_ATTENTION:
        return {"dp_attention": True, **_setting("--dp-size", "dp_size", values, accepted)}
    if flag == "--hisparse-config" and (hisparse := _hisparse(values[0])) is not None:
        return hisparse
    knob = knob_of(flag, accepted)
    if knob is not None:
        spelling = spelling_of(knob, flag)
        if not values:
            return {knob: spelling is None or not spelling.off}
        value = knob_value(knob, canonical_text(spelling, values[0]))
        if value is not None and len(values) == 1:
            return {knob: value}
    return {f"{ARGS}{dest}": _argument(flag, values)}


def _argument(flag: str, values: list[str]) -> KnobValue:
    if not values:
        return not flag.startswith("--no-")
    if len(values) > 1:
        return " ".join(values)
    return argument_value(values[0])


def _hisparse(text: str) -> Mapping[str, KnobValue] | None:
    """Its JSON as knobs; None where it has more than they say."""
    names = {key: knob for knob, key in HISPARSE_KEYS.items()}
    given = json_object(text)
    if given is None or not given.keys() <= names.keys():
        return None
    return {names[key]: value for key, value in given.items()}


def _join_words(found: ReadCommand, accepted: Accepted) -> None:
    """Arguments that together are one position of a switch, such as `--cuda-graph-backend-… disabled` of both phases."""
    for knob, spellings in FLAGS.items():
        spelling = best_spelling(spellings, accepted)
        for position, words in () if spelling is None else ((True, spelling.on), (False, spelling.off)):
            pairs = words.split()
            said = {
                f"{ARGS}{accepted.flags[flag].dest}": text for flag, text in zip(pairs[::2], pairs[1::2], strict=False)
            }
            if said and said.items() <= found.knobs.items():
                for name in said:
                    del found.knobs[name]
                found.knobs[knob] = position


def _is_shell(value: KnobValue) -> bool:
    return isinstance(value, str) and re.search(r"\$[\w{(]", value) is not None
