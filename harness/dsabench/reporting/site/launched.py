"""How a setting is started by hand, and what of it really ran."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from pydantic import JsonValue

from dsabench.config.runtime_kinds import runtime_kinds
from dsabench.errors import InputError
from dsabench.model.runtime import RuntimeSpec
from dsabench.rooms import folders
from dsabench.runtimes.command import Launch, in_shell, public_env
from dsabench.runtimes.kinds import runtime_of
from dsabench.runtimes.plan import PlannedProcess
from dsabench.sglang.accepts import Accepted, from_table
from dsabench.sglang.model_config import local_folder
from dsabench.sglang.readback import runs_as
from dsabench.sglang.versions import parse_version


@dataclass(frozen=True, slots=True)
class Command:
    """A text to paste; of several processes one each, under the name of its role."""

    text: str | None
    note: str = ""
    """Why there is none, or what to know."""


@lru_cache(maxsize=4096)
def _of_text(spec_json: str, version: str) -> Command:
    spec = RuntimeSpec.model_validate_json(spec_json)
    model = _from_root(spec.model) if runtime_kinds()[spec.kind].models is None else None
    there = spec if model is None else spec.model_copy(update={"model": model})
    runtime = runtime_of(spec.kind, Launch(python=Path("python3")))
    try:
        plan = runtime.plan(there, version, cores=(0, 1))
    except (InputError, ValueError) as error:
        return Command(None, f"no command: {error}")
    if not plan.processes:
        return Command(None, plan.note)
    if not runtime.releases:
        return Command(_texts(plan.processes, spec))
    where = "" if model is None else ", from the root of dsabench's repository, where the model's folder lies"
    return Command(_texts(plan.processes, spec), f"for {spec.kind} {version}{where}")


def _texts(processes: Sequence[PlannedProcess], spec: RuntimeSpec) -> str:
    """The commands to paste, of several each under its role. Where this machine keeps its packages is left out."""
    texts = []
    for process in processes:
        head = f"# {process.role}, node {process.node_rank}\n" if len(processes) > 1 else ""
        env = {name: value for name, value in process.env.items() if name != "PYTHONPATH" or name in spec.env}
        texts.append(head + in_shell(process.argv, public_env(env)))
    return "\n\n".join(texts)


def _from_root(model: str) -> str | None:
    """The path of a model that is a folder of our own configs, from the repository's root; None of any other."""
    folder = None if Path(model).is_absolute() else local_folder(model)
    if folder is None:
        return None
    room = next((room.absolute() for room in folders("configs") if folder.is_relative_to(room.absolute())), None)
    return None if room is None else (Path("configs") / folder.relative_to(room)).as_posix()


def command_of(spec: RuntimeSpec, version: str) -> Command:
    """The command line of a spec for the version that ran."""
    return _of_text(spec.model_dump_json(exclude_none=True), version)


_SPOKEN = "0.5.23"
"""The sglang whose names the reference runtime's /server_info has."""


@dataclass(frozen=True, slots=True)
class Told:
    """A knob as asked and as the server says it runs; None where it does not say."""

    name: str
    asked: str
    runs: str | None
    differs: bool


def told(spec: RuntimeSpec, resolved: Mapping[str, JsonValue], version: str) -> list[Told]:
    """Every knob of the spec."""
    own = resolved.get("dsabench")
    own = own if isinstance(own, Mapping) else {}
    log = own.get("log")
    facts = log if isinstance(log, Mapping) else {}
    said = own.get("differs", own.get("differences"))
    differing = {str(line).partition(":")[0] for line in said} if isinstance(said, list | tuple) else set()
    accepted = _accepted(_SPOKEN if spec.kind == "reference" else version) if spec.kind != "external" else None
    rows = []
    for name, asked in spec.knobs.items():
        runs = resolved.get(name) if accepted is None else runs_as(name, resolved, facts, accepted)
        runs = _said_apart(name, resolved) if runs is None else runs
        differs = name in differing or (spec.kind == "reference" and runs is not None and _text(runs) != _text(asked))
        rows.append(Told(name, _text(asked), None if runs is None else _text(runs), differs))
    return rows


def _said_apart(name: str, resolved: Mapping[str, JsonValue]) -> JsonValue | None:
    """What stands under no flag of its own: speculation that is off, and what the reference runtime has no flag for."""
    if name == "speculative_algorithm" and "speculative_algorithm" in resolved:
        return "off"
    of_reference = resolved.get("reference")
    return of_reference.get(name) if isinstance(of_reference, Mapping) else None


@lru_cache(maxsize=64)
def _accepted(version: str) -> Accepted | None:
    try:
        return from_table(parse_version(version))
    except (InputError, ValueError):
        return None


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
