"""What a release's own argument code says to settings: asked once, remembered on disk."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from pathlib import Path

from dsabench import rooms
from dsabench.model.runtime import RuntimeSpec
from dsabench.model.topology import Role, RoleName
from dsabench.model.value import digest
from dsabench.runtimes.plan import role_specs
from dsabench.sglang.accepts import Accepted, flags_of_release
from dsabench.sglang.hardware import HARDWARE, Accelerator, accelerator
from dsabench.sglang.model_config import local_folder, whole_config
from dsabench.sglang.render import render
from dsabench.sglang.resolve.client import ArgumentAnswer, ArgumentCase, ArgumentProcess
from dsabench.sglang.resolve.releases import AddedRelease

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
    """The argument code of one release; see `argument_check`."""

    release: AddedRelease
    accepted: Accepted
    processes: dict[str, ArgumentProcess] = field(default_factory=dict)
    """Accelerator → the process that believes in it."""
    known: dict[str, dict[str, ArgumentAnswer]] = field(default_factory=dict)
    """Accelerator → id of a case → its answer."""

    def ask(self, specs: Sequence[RuntimeSpec]) -> list[tuple[RoleAnswer, ...]]:
        """For each spec what is said to its roles; none where the hardware cannot be pretended (NPU)."""
        asked = [(_device(spec), [*self._cases(spec)]) for spec in specs]
        for device in {device.name: device for device, _ in asked}.values():
            if device.platform != "npu":
                self._learn(device, [case for own, cases in asked if own == device for _, case in cases])
        return [
            tuple(RoleAnswer(role, self._known(device)[_id(case)]) for role, case in cases)
            if device.platform != "npu"
            else ()
            for device, cases in asked
        ]

    def close(self) -> None:
        """End the processes."""
        for process in self.processes.values():
            process.close()
        self.processes.clear()

    def _cases(self, spec: RuntimeSpec) -> Iterator[tuple[RoleName, ArgumentCase]]:
        for role, own in role_specs(spec):
            yield role.role, _case(role, own, self.accepted)

    def _known(self, device: Accelerator) -> dict[str, ArgumentAnswer]:
        if device.name not in self.known:
            self.known[device.name] = _read(_cache_file(self.release, device))
        return self.known[device.name]

    def _learn(self, device: Accelerator, cases: Sequence[ArgumentCase]) -> None:
        known = self._known(device)
        new = {_id(case): case for case in cases if _id(case) not in known}
        answers = {name: _unknown_model(case) for name, case in new.items()}
        ask = {name: new[name] for name, answer in answers.items() if answer is None}
        if ask:
            process = self.processes.get(device.name) or ArgumentProcess(self.release, device)
            self.processes[device.name] = process
            answers |= dict(zip(ask, process.ask([*ask.values()]), strict=True))
        found = {name: answer for name, answer in answers.items() if answer is not None}
        known |= found
        _write(_cache_file(self.release, device), found)


@lru_cache(maxsize=8)
def argument_check(release: AddedRelease) -> ArgumentCheck:
    """The argument code of that release, for as long as this process lives: its import takes seconds."""
    check = ArgumentCheck(release, flags_of_release(release.version))
    atexit.register(check.close)
    return check


def _device(spec: RuntimeSpec) -> Accelerator:
    return HARDWARE[DEFAULT_HARDWARE] if spec.hardware is None else accelerator(spec.hardware)


def _case(role: Role, spec: RuntimeSpec, accepted: Accepted) -> ArgumentCase:
    """The command line of a role's first server, without what only its place decides (ports, addresses)."""
    rendered = render(spec.knobs, spec.env, accepted)
    folder = local_folder(spec.model)
    words = ["--model-path", spec.model if folder is None else str(folder), *rendered.words]
    words += [] if role.role == "server" else ["--disaggregation-mode", role.role]
    if role.nodes > 1:
        words += ["--nnodes", str(role.nodes), "--node-rank", "0", "--dist-init-addr", "127.0.0.1:20000"]
    named = {word: whole_config(word) for word in (spec.model, str(spec.knobs.get("speculative_draft_model_path")))}
    return ArgumentCase(tuple(words), rendered.env, {word: config for word, config in named.items() if config})


def _unknown_model(case: ArgumentCase) -> ArgumentAnswer | None:
    """The answer where the model's widths are not to be had; nothing can be asked then."""
    name = case.argv[1]
    if name in case.models or Path(name).is_dir():
        return None
    return ArgumentAnswer("cannot_say", text=f"{name} is neither a folder here nor a model whose config.json is known")


def _id(case: ArgumentCase) -> str:
    return digest(json.dumps([_FORM, case.argv, dict(case.env), dict(case.models)], sort_keys=True))


def _cache_file(release: AddedRelease, device: Accelerator) -> Path:
    return rooms.cache_folder() / "resolved" / f"{release.sha256[:16]}-{device.name}.jsonl"


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
