"""What a release's own argument code says to settings: asked once, remembered on disk."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from dsabench import rooms
from dsabench.model.hardware import HARDWARE, Accelerator, accelerator
from dsabench.model.knobs import ARGS
from dsabench.model.runtime import RuntimeSpec
from dsabench.model.topology import SINGLE, Role, RoleName
from dsabench.model.value import digest
from dsabench.runtimes.plan import role_specs
from dsabench.sglang.accepts import Accepted
from dsabench.sglang.model_config import config_json, local_folder
from dsabench.sglang.readback import fields_of_knobs
from dsabench.sglang.render import render
from dsabench.sglang.resolve.client import WARM_MODEL, ArgumentAnswer, ArgumentCase, ArgumentProcess, ArgumentSource

DEFAULT_HARDWARE = "h200"
"""What is pretended where a setting names no hardware."""

_FORM = 5
"""Of the answers that are remembered; another one asks anew."""


@dataclass(frozen=True, slots=True)
class RoleAnswer:
    """What SGLang says to the command line of one role."""

    role: RoleName
    answer: ArgumentAnswer


@dataclass
class ArgumentCheck:
    """An argument code, with all that it was asked. Its processes end with this one."""

    source: ArgumentSource
    accepted: Accepted
    processes: dict[str, ArgumentProcess] = field(default_factory=dict)
    """Accelerator → the process that believes in it."""
    known: dict[str, dict[str, ArgumentAnswer]] = field(default_factory=dict)
    """Accelerator → id of a case → its answer."""

    def ask(self, specs: Sequence[RuntimeSpec]) -> list[tuple[RoleAnswer, ...]]:
        """For each spec what is said to its roles.

        Nothing where the hardware cannot be pretended (NPU), or the model's config.json is not known.
        """
        asked = [
            (place, _device(spec), role.role, _case(role, own, self.accepted, is_here=self.source.launch is None))
            for place, spec in enumerate(specs)
            if config_json(spec.model) is not None
            for role, own in role_specs(spec)
        ]
        said: list[list[RoleAnswer]] = [[] for _ in specs]
        for device in {device.name: device for _, device, _, _ in asked if device.platform != "npu"}.values():
            here = [(place, role, case) for place, own, role, case in asked if own == device]
            answers = self._ask_on(device, [case for _, _, case in here])
            for (place, role, _), answer in zip(here, answers, strict=True):
                said[place].append(RoleAnswer(role, answer))
        return [tuple(own) for own in said]

    def _ask_on(self, device: Accelerator, cases: Sequence[ArgumentCase]) -> list[ArgumentAnswer]:
        """The answers to command lines on one kind of GPU."""
        if device.name not in self.known:
            self.known[device.name] = _read(_cache_file(self.source, device))
        known = self.known[device.name]
        names = [_id(case) for case in cases]
        new = {name: case for name, case in zip(names, cases, strict=True) if name not in known}
        if new:
            process = self.processes.get(device.name)
            if process is None or process.has_ended:
                process = self.processes[device.name] = ArgumentProcess(self.source, device)
            answers = zip(new.items(), process.ask([*new.values()]), strict=True)
            found = {name: self._brief(one, case, process.usual) for (name, case), one in answers}
            known |= found
            _write(_cache_file(self.source, device), found)
        return [known[name] for name in names]

    def close(self) -> None:
        """End the processes."""
        for process in self.processes.values():
            process.close()
        self.processes.clear()

    def _brief(self, answer: ArgumentAnswer, case: ArgumentCase, usual: Sequence[str]) -> ArgumentAnswer:
        """Without the fields that nothing here sets, and what is logged of any setting: there are 500 fields, and a search
        asks about thousands of settings.
        """
        kept = fields_of_knobs(self.accepted, case.argv)
        resolved = {name: value for name, value in answer.resolved.items() if name in kept}
        lines = dict.fromkeys(answer.warnings)
        own = tuple(line.strip() for line in lines if line.replace(case.argv[1], WARM_MODEL) not in usual)
        return replace(answer, resolved=resolved, warnings=own)


def _device(spec: RuntimeSpec) -> Accelerator:
    return HARDWARE[DEFAULT_HARDWARE] if spec.hardware is None else accelerator(spec.hardware)


def _case(role: Role, spec: RuntimeSpec, accepted: Accepted, *, is_here: bool) -> ArgumentCase:
    """The command line of a role's first server, without what only its place decides (ports, addresses)."""
    rendered = render(spec.knobs, spec.env, accepted)
    folder = local_folder(spec.model) if is_here else None  # it may have more than config.json
    words = ["--model-path", spec.model if folder is None else str(folder), *rendered.words]
    words += [] if role.role == "server" else ["--disaggregation-mode", role.role]
    if role.nodes > 1:
        words += ["--nnodes", str(role.nodes), "--node-rank", "0", "--dist-init-addr", "127.0.0.1:20000"]
    named = (spec.model, str(spec.knobs.get("speculative_draft_model")))
    models = {name: config for name in named if (config := config_json(name, accepted.version)) is not None}
    return ArgumentCase(tuple(words), rendered.env, models)


def _id(case: ArgumentCase) -> str:
    return digest(json.dumps([_FORM, case.argv, dict(case.env), dict(case.models)], sort_keys=True))


def _cache_file(source: ArgumentSource, device: Accelerator) -> Path:
    return rooms.cache_folder() / "resolved" / f"{source.wheel_hash[:16]}-{device.name}.jsonl"


def _read(file: Path) -> dict[str, ArgumentAnswer]:
    """The answers of earlier runs; torn and foreign lines are left out."""
    found: dict[str, ArgumentAnswer] = {}
    with contextlib.suppress(OSError):
        for line in file.read_text(encoding="utf-8").splitlines():
            with contextlib.suppress(ValueError, TypeError, KeyError):
                name, answer = json.loads(line)
                found[name] = ArgumentAnswer(**{**answer, "warnings": tuple(answer["warnings"])})
    return found


def _write(file: Path, answers: Mapping[str, ArgumentAnswer]) -> None:
    """Append what is certain. A cache that cannot be written is done without."""
    lines = [json.dumps([name, asdict(one)]) for name, one in answers.items() if one.verdict != "cannot_say"]
    if not lines:
        return
    with contextlib.suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("ab") as opened:  # one write: lines of two processes do not mix
            opened.write("".join(f"{line}\n" for line in lines).encode())
            os.fsync(opened.fileno())


def neighbours(spec: RuntimeSpec, refusal: str) -> Iterator[tuple[str, ...]]:
    """Knobs to leave out, those that the refusal names first; then those with a word in common, together."""
    names = [*dict.fromkeys([*spec.knobs, *(name for role in (spec.topology or SINGLE).roles for name in role.knobs)])]
    said = refusal.replace("-", "_").lower()
    names.sort(key=lambda name: name.removeprefix(ARGS) not in said)
    yield from ((name,) for name in names)
    families: dict[str, list[str]] = {}
    for name in names:
        families.setdefault(name.removeprefix(ARGS).partition("_")[0], []).append(name)
    yield from (tuple(family) for family in families.values() if len(family) > 1)


def left_out(spec: RuntimeSpec, names: Sequence[str]) -> RuntimeSpec:
    """The spec without these knobs, its roles included."""
    kept = {name: value for name, value in spec.knobs.items() if name not in names}
    topology = spec.topology
    if topology is not None:
        roles = tuple(
            role.model_copy(update={"knobs": {name: value for name, value in role.knobs.items() if name not in names}})
            for role in topology.roles
        )
        topology = topology.model_copy(update={"roles": roles})
    return spec.model_copy(update={"knobs": kept, "topology": topology})
