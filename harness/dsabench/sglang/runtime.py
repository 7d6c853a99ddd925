"""sglang, driven: rendered for the installed version, judged, booted, read back, taken down."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import cached_property, partial

from pydantic import JsonValue, TypeAdapter, ValidationError

from dsabench.errors import InputError, TrialFault
from dsabench.model.environment import RuntimeIdentity
from dsabench.model.runtime import RuntimeSpec
from dsabench.runtimes.command import Launch
from dsabench.runtimes.deployment import Deployment, LogReader, ServerProgram, run_deployment
from dsabench.runtimes.gpu_memory import memory_back, read_used
from dsabench.runtimes.plan import role_specs, settle
from dsabench.runtimes.protocol import Place
from dsabench.sglang.accepts import Accepted, from_table
from dsabench.sglang.diagnose import refine
from dsabench.sglang.installed import Installed
from dsabench.sglang.judge import Objection, judge
from dsabench.sglang.model_config import local_folder, read_config, vocabulary
from dsabench.sglang.plan import plan_sglang
from dsabench.sglang.progress import say_progress
from dsabench.sglang.readback import differences, facts_in, settings_of
from dsabench.sglang.versions import OLDEST, parse_version

LOG_READER = LogReader(say_progress, refine)
"""What sglang's servers write of a boot's steps and of a failure's cause."""

TABLE = "table"
"""In place of a wheel's hash: nothing is installed, a plan is made for a version of the table."""

_JSON = TypeAdapter(dict[str, JsonValue])


@dataclass(frozen=True)
class SglangRuntime:
    """A `Runtime` for `kind: sglang`."""

    launch: Launch

    async def identity(self) -> RuntimeIdentity:
        """What is installed under the interpreter, container or prefix; see `Runtime.identity`."""
        return await asyncio.to_thread(lambda: self._identity)

    async def accepted(self) -> Accepted:
        """What the installed version takes.

        Raises:
            InputError: there is none, or one too old to be described.

        """
        return await asyncio.to_thread(lambda: self._accepted)

    @asynccontextmanager
    async def serve(self, spec: RuntimeSpec, place: Place) -> AsyncIterator[Deployment]:
        """Boot the spec; see `Runtime.serve`. What the rules call an error is refused before anything starts."""
        accepted = await self.accepted()
        if spec.version is not None and parse_version(spec.version) != accepted.version:
            raise InputError(f"the config asks for sglang {spec.version}, installed is {accepted.version}")
        asked = settle(spec)
        objections = judge(plan_sglang(asked, accepted, self.launch), asked, accepted)
        _refuse(asked, objections)
        folder = local_folder(asked.model)
        found = asked if folder is None else asked.model_copy(update={"model": str(folder)})
        async with AsyncExitStack() as stack:
            if not self.launch.command_prefix:
                await stack.enter_async_context(memory_back(partial(read_used, self._visible(found))))
            server = await stack.enter_async_context(
                run_deployment(
                    found, ServerProgram(partial(plan_sglang, found, accepted), LOG_READER), self.launch, place
                )
            )
            server.resolved = await _read_back(server, asked, accepted, objections)
            yield server

    def _visible(self, spec: RuntimeSpec) -> str | None:
        """Which GPUs the server will see."""
        name = "CUDA_VISIBLE_DEVICES"
        return spec.env.get(name) or self.launch.env.get(name) or os.environ.get(name)

    @cached_property
    def _identity(self) -> RuntimeIdentity:
        return asyncio.run(Installed(self.launch).identity())

    @cached_property
    def _accepted(self) -> Accepted:
        accepted = asyncio.run(Installed(self.launch).accepted())
        if accepted.version < OLDEST:
            raise InputError(f"sglang {accepted.version} is installed; versions before {OLDEST} are not described")
        return accepted


def identity_of_table(version: str) -> RuntimeIdentity:
    """What a plan is made for where no sglang is at hand: a version from the table.

    Raises:
        InputError: the table does not have it.

    """
    accepted = from_table(parse_version(version))
    return RuntimeIdentity(kind="sglang", version=str(accepted.version), wheel_hash=TABLE)


def objections_to(spec: RuntimeSpec, accepted: Accepted, launch: Launch) -> tuple[Objection, ...]:
    """All that is known against a spec that is not launched yet, errors first."""
    asked = settle(spec)
    return judge(plan_sglang(asked, accepted, launch), asked, accepted)


def refusal_of(spec: RuntimeSpec, accepted: Accepted, launch: Launch) -> str | None:
    """Why a spec would not be booted, in one line; None where it would."""
    try:
        _refuse(settle(spec), objections_to(spec, accepted, launch))
    except TrialFault as fault:
        return fault.message
    return None


def _refuse(asked: RuntimeSpec, objections: Sequence[Objection]) -> None:
    """Raise what forbids the boot.

    Raises:
        TrialFault: kind illegal_config; names the rule.

    """
    errors = [objection for objection in objections if objection.severity == "error"]
    if errors:
        more = f" (and {len(errors) - 1} more: {', '.join(one.rule for one in errors[1:])})" if errors[1:] else ""
        raise TrialFault("illegal_config", f"{errors[0]}{more}", stage="boot")
    for _, own in role_specs(asked):
        knobs = own.knobs
        if (
            knobs.get("load_format") == "dummy"
            and "speculative_algorithm" in knobs
            and "simulated_accept_length" not in knobs
        ):
            message = "random weights accept no draft, so speculation would only be shown as slow"
            raise TrialFault("illegal_config", f"SIM01: {message}; set simulated_accept_length", stage="boot")


async def _read_back(
    server: Deployment, asked: RuntimeSpec, accepted: Accepted, objections: Sequence[Objection]
) -> Mapping[str, JsonValue]:
    """The servers' settings, and under `dsabench` what the log and the comparison with the asked add."""
    infos = await server.infos("boot")
    several = len(server.servers) > 1
    knobs = {role.role: own.knobs for role, own in role_specs(asked)}
    settings: dict[str, JsonValue] = {}
    logs: dict[str, JsonValue] = {}
    different: list[str] = []
    for part in server.servers:
        told = infos[part.name] if several else infos
        assert isinstance(told, dict)
        facts = facts_in(part.log())
        own = settings_of(told)
        logs[part.name] = facts
        lines = differences(knobs[part.what.role], told, facts, accepted)  # type: ignore[index]
        if several:
            settings[part.name] = own
            different += [f"{part.name}: {line}" for line in lines]
        else:
            settings |= own
            different += lines
    first = settings if not several else settings[server.servers[0].name]
    assert isinstance(first, dict)
    said = {
        "vocab_size": vocabulary(asked.model, asked.knobs, first),
        "log": logs[server.servers[0].name] if not several else logs,
        "differences": list(dict.fromkeys(different)),
        "notes": [str(objection) for objection in objections],
        "slice": (read_config(asked.model) or {}).get("dsabench_slice"),
    }
    return {**_plain(settings), "dsabench": _plain(said)}


def _plain(value: Mapping[str, object]) -> dict[str, JsonValue]:
    """Without what is absent, as JSON has it."""
    kept = {name: one for name, one in value.items() if one is not None and one not in ([], {})}
    try:
        return _JSON.validate_python(json.loads(json.dumps(kept)))
    except (TypeError, ValueError, ValidationError):
        return {}
