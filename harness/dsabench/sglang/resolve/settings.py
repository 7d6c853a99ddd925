"""What a release's own argument code says to settings: asked once, remembered on disk."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path

from pydantic import JsonValue

from dsabench import rooms
from dsabench.model.environment import RuntimeIdentity
from dsabench.model.runtime import RuntimeSpec
from dsabench.model.topology import SINGLE, RoleName
from dsabench.model.value import digest
from dsabench.runtimes.command import Launch
from dsabench.runtimes.plan import role_specs
from dsabench.sglang.accepts import Accepted
from dsabench.sglang.hardware import HARDWARE, Accelerator, accelerator
from dsabench.sglang.model_config import local_folder, whole_config
from dsabench.sglang.render import render
from dsabench.sglang.resolve.client import ArgumentAnswer, ArgumentCase, ArgumentProcess, ArgumentSource
from dsabench.sglang.spellings import FLAGS

DEFAULT_HARDWARE = "h200"
"""What is pretended where a setting names no hardware."""

_FORM = 1
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
        """For each spec what is said to its roles; nothing where the hardware cannot be pretended (NPU)."""
        asked = [(_device(spec), role, self.case(spec, role)) for spec in specs for role in _roles(spec)]
        for device in {device.name: device for device, _, _ in asked}.values():
            self.ask_on(device, [case for own, _, case in asked if own == device])
        said = iter(asked)
        return [
            tuple(
                RoleAnswer(role, self._known(device)[_id(case)])
                for device, role, case in (next(said) for _ in _roles(spec))
                if device.platform != "npu"
            )
            for spec in specs
        ]

    def ask_on(self, device: Accelerator, cases: Sequence[ArgumentCase]) -> list[ArgumentAnswer]:
        """The answers to command lines on one kind of GPU; none on an NPU."""
        if device.platform == "npu":
            return []
        known = self._known(device)
        new = {_id(case): case for case in cases if _id(case) not in known}
        answers = {name: _unknown_model(case) for name, case in new.items()}
        ask = {name: new[name] for name, answer in answers.items() if answer is None}
        if ask:
            process = self.processes.get(device.name)
            if process is None or process.has_ended:
                process = self.processes[device.name] = ArgumentProcess(self.source, device)
            answers |= dict(zip(ask, process.ask([*ask.values()]), strict=True))
        found = {name: self._brief(answer) for name, answer in answers.items() if answer is not None}
        known |= found
        _write(_cache_file(self.source, device), found)
        return [known[_id(case)] for case in cases]

    def case(self, spec: RuntimeSpec, name: RoleName) -> ArgumentCase:
        """The command line of a role's first server, without what only its place decides (ports, addresses)."""
        role, own = next((role, own) for role, own in role_specs(spec) if role.role == name)
        rendered = render(own.knobs, own.env, self.accepted)
        folder = local_folder(own.model)
        words = ["--model-path", own.model if folder is None else str(folder), *rendered.words]
        words += [] if role.role == "server" else ["--disaggregation-mode", role.role]
        if role.nodes > 1:
            words += ["--nnodes", str(role.nodes), "--node-rank", "0", "--dist-init-addr", "127.0.0.1:20000"]
        named = {
            word: _config_for(word, self.accepted)
            for word in (own.model, str(own.knobs.get("speculative_draft_model")))
        }
        return ArgumentCase(tuple(words), rendered.env, {word: config for word, config in named.items() if config})

    def close(self) -> None:
        """End the processes."""
        for process in self.processes.values():
            process.close()
        self.processes.clear()

    def _brief(self, answer: ArgumentAnswer) -> ArgumentAnswer:
        """Without the fields that no knob sets: there are 500, and a search asks about thousands of settings."""
        kept = {name: value for name, value in answer.resolved.items() if name in self._fields}
        return replace(answer, resolved=kept)

    @cached_property
    def _fields(self) -> frozenset[str]:
        flags = (flag for spellings in FLAGS.values() for one in spellings for flag in one.flags)
        words = {word for spellings in FLAGS.values() for one in spellings for word in (one.on + " " + one.off).split()}
        named = {self.accepted.flags[flag].dest for flag in {*flags, *words} if flag in self.accepted.flags}
        return frozenset(named | {"attn_dp_size", "dp_size", "enable_dp_attention"})

    def _known(self, device: Accelerator) -> dict[str, ArgumentAnswer]:
        if device.name not in self.known:
            self.known[device.name] = _read(_cache_file(self.source, device))
        return self.known[device.name]


def source_of_launch(launch: Launch, identity: RuntimeIdentity) -> ArgumentSource:
    """The SGLang of the interpreter that a launch names on this machine. It sees no PYTHONPATH but the launch's own."""
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    env = {**inherited, **launch.env, "PYTHONSAFEPATH": "1"}
    return ArgumentSource(identity.version, identity.wheel_hash, (launch.interpreter, "-B"), env)


def _device(spec: RuntimeSpec) -> Accelerator:
    return HARDWARE[DEFAULT_HARDWARE] if spec.hardware is None else accelerator(spec.hardware)


def _roles(spec: RuntimeSpec) -> Iterator[RoleName]:
    return (role.role for role in (spec.topology or SINGLE).roles)


def _config_for(model: str, accepted: Accepted) -> dict[str, JsonValue] | None:
    """config.json of a known model. The transformers that 0.5.9 pins has no GLM-5; SGLang goes by the architecture."""
    config = whole_config(model)
    if config is not None and accepted.version < (0, 5, 10) and config["model_type"] == "glm_moe_dsa":
        config["model_type"] = "deepseek_v3"
    return config


def _unknown_model(case: ArgumentCase) -> ArgumentAnswer | None:
    """The answer where the model's widths are not to be had; nothing can be asked then."""
    name = case.argv[1]
    if name in case.models or Path(name).is_dir():
        return None
    return ArgumentAnswer("cannot_say", text=f"{name} is neither a folder here nor a model whose config.json is known")


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
    names.sort(key=lambda name: name not in said)
    yield from ((name,) for name in names)
    families: dict[str, list[str]] = {}
    for name in names:
        families.setdefault(name.partition("_")[0], []).append(name)
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
