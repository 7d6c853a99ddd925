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
from dsabench.runtimes.readback import KnobReadback
from dsabench.sglang.model_config import local_folder


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


def readback_of(spec: RuntimeSpec, resolved: Mapping[str, JsonValue], version: str) -> tuple[KnobReadback, ...]:
    """Every knob of a spec, as asked and as it ran."""
    return runtime_of(spec.kind, Launch()).readback(spec, resolved, version)
