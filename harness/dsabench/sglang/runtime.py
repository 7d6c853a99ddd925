"""sglang, driven: rendered for the installed version, judged, booted, read back, taken down."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache, partial

from packaging.version import Version
from pydantic import JsonValue, TypeAdapter, ValidationError

from dsabench.errors import InputError, TrialFault
from dsabench.machine.checks import Finding
from dsabench.model.environment import RuntimeIdentity
from dsabench.model.hardware import accelerator
from dsabench.model.knobs import KNOBS
from dsabench.model.runtime import MemoryForecast, RuleViolation, RuntimeSpec, SettingCheck, SettingNote
from dsabench.model.topology import SINGLE, RoleHosts
from dsabench.model.value import KnobValue
from dsabench.runtimes.command import Launch
from dsabench.runtimes.deployment import Deployment, LogReader, ServerProgram, run_deployment
from dsabench.runtimes.gpu_memory import memory_back, read_used
from dsabench.runtimes.plan import LaunchPlan, gpus_of, role_specs, settle
from dsabench.runtimes.protocol import AttentionShape, Place
from dsabench.runtimes.readback import KnobReadback, read_knobs
from dsabench.sglang.accepts import Accepted, flags_of_release, known_versions
from dsabench.sglang.diagnose import refine
from dsabench.sglang.examine import check_sglang
from dsabench.sglang.installed import Installed
from dsabench.sglang.memory_forecast import forecast_memory
from dsabench.sglang.model_config import attention_widths, config_json, local_folder, slice_of, vocabulary
from dsabench.sglang.plan import plan_sglang
from dsabench.sglang.progress import say_progress
from dsabench.sglang.rank import strategy_of
from dsabench.sglang.readback import differences, facts_in, resolved_knobs, runs_as, settings_of
from dsabench.sglang.resolve.client import source_of, source_of_launch
from dsabench.sglang.resolve.releases import added_release, added_releases
from dsabench.sglang.resolve.settings import ArgumentCheck, RoleAnswer, left_out, neighbours
from dsabench.sglang.rules.resolve import resolve
from dsabench.sglang.rules.table import judge
from dsabench.sglang.versions import OLDEST, is_release

TABLE = "table"
"""In place of a wheel's hash: nothing is installed, a plan is made for a version of the table."""

_UNKNOWN_MODEL = (
    "is neither a folder here nor a known model: neither sglang's own checks nor rules about its size, weights and parsers "
    "were asked"
)
_MOST_STEPS = 4
"""Of the way from a refused setting to one that runs."""
_JSON = TypeAdapter(dict[str, JsonValue])


@dataclass(frozen=True)
class SglangRuntime:
    """A `Runtime` for `kind: sglang`."""

    launch: Launch
    checks: dict[str | None, ArgumentCheck | None] = field(default_factory=dict, repr=False, compare=False)
    """Release → its argument code, as far as it was asked for; None is what is installed."""

    async def identity(self, version: str | None = None) -> RuntimeIdentity:
        """What is installed under the interpreter, container or prefix; see `Runtime.identity`."""
        if version is not None:
            return RuntimeIdentity(kind="sglang", version=flags_of_release(version).release, wheel_hash=TABLE)
        return await asyncio.to_thread(lambda: self._identity)

    @property
    def releases(self) -> tuple[str, ...]:
        """Those of the table, and those that were added; see `Runtime.releases`."""
        return tuple(sorted({*map(str, known_versions()), *(one.version for one in added_releases())}, key=Version))

    def check(self, specs: Sequence[RuntimeSpec], version: str | None = None) -> tuple[SettingCheck, ...]:
        """SGLang's own argument code if the release was added, the rules, and what rendering notices; see `Runtime.check`."""
        accepted = self._accepted if version is None else flags_of_release(version)
        asked = self._argument_check(version)
        if asked is None:
            return tuple(_unasked(check_setting(spec, accepted, self.launch), accepted) for spec in specs)
        said = asked.ask([*map(settle, specs)])
        return tuple(check_setting(spec, accepted, self.launch, own) for spec, own in zip(specs, said, strict=True))

    def nearest(self, spec: RuntimeSpec, version: str | None = None) -> tuple[str, ...] | None:
        """Found by asking about settings with less; see `Runtime.nearest`."""
        names: tuple[str, ...] = ()
        for _ in range(_MOST_STEPS):
            refusal = self.check((left_out(spec, names),), version)[0].refusal
            if refusal is None:
                return names
            tried = [(*names, *more) for more in neighbours(left_out(spec, names), refusal.line)]
            answers = [one.refusal for one in self.check([left_out(spec, more) for more in tried], version)]
            legal = (more for more, answer in zip(tried, answers, strict=True) if answer is None)
            # Else what is refused for another reason: two things may be wrong.
            other = (
                more for more, answer in zip(tried, answers, strict=True) if answer and answer.rule != refusal.rule
            )
            names = next(legal, ()) or next(other, names)
        return None

    def plan(
        self,
        spec: RuntimeSpec,
        version: str | None = None,
        *,
        sites: Mapping[str, RoleHosts] | None = None,
        cores: Sequence[int] = (),
    ) -> LaunchPlan:
        """One command per node, and the router's; see `Runtime.plan`. Ports that no site names are sglang's defaults."""
        del cores
        accepted = self._accepted_for(spec) if version is None else flags_of_release(version)
        launch = replace(self.launch, sites={**self.launch.sites, **(sites or {})})
        return plan_sglang(settle(spec), accepted, launch)

    def attention(self, spec: RuntimeSpec) -> AttentionShape:
        """Heads of a rank by TP and DP attention; see `Runtime.attention`."""
        heads, topk, layers = attention_widths(spec.model)
        shards = _size(spec.knobs, "dp_size") if spec.knobs.get("dp_attention") is True else 1
        ranks = _size(spec.knobs, "tp_size") // shards
        if ranks < 1 or heads % ranks:
            raise InputError(f"{heads} heads cannot be shared by {ranks} ranks of the attention")
        device = None if spec.hardware is None else accelerator(spec.hardware).device_name
        named = device and device.replace(" ", "_")
        return AttentionShape("sglang", heads // ranks, topk, layers, named, strategy_of(spec))

    def gpus(self, spec: RuntimeSpec) -> int:
        """Ranks of all its instances; see `Runtime.gpus`."""
        return gpus_of(spec)

    def readback(self, spec: RuntimeSpec, resolved: Mapping[str, JsonValue], version: str) -> tuple[KnobReadback, ...]:
        """By the log and /server_info, under the names of that version; see `Runtime.readback`."""
        own = resolved.get("dsabench")
        log = own.get("log") if isinstance(own, Mapping) else None
        facts = log if isinstance(log, Mapping) else {}
        accepted = _described(version)

        def knob(name: str) -> JsonValue | None:
            told = resolved.get(name) if accepted is None else runs_as(name, resolved, facts, accepted)
            off = told is None and name == "speculative_algorithm" and name in resolved
            return "off" if off else told

        return read_knobs(spec, resolved, knob, by_text=False)

    async def examine(self, driver_cuda: str | None) -> list[Finding]:
        """Versions of sglang, its kernels and torch; see `Runtime.examine`."""
        return await check_sglang(self.launch, driver_cuda)

    @asynccontextmanager
    async def serve(self, spec: RuntimeSpec, place: Place) -> AsyncIterator[Deployment]:
        """Boot the spec; see `Runtime.serve`. What the rules call an error is refused before anything starts."""
        accepted = await asyncio.to_thread(self._accepted_for, spec)
        asked = settle(spec)
        checked = check_setting(asked, accepted, self.launch)
        if (refusal := checked.refusal) is not None:
            raise TrialFault("illegal_config", refusal.line, stage="boot")
        folder = local_folder(asked.model)
        found = asked if folder is None else asked.model_copy(update={"model": str(folder)})
        async with AsyncExitStack() as stack:
            if not self.launch.command_prefix:
                await stack.enter_async_context(memory_back(partial(read_used, self._visible(found))))
            server = await stack.enter_async_context(
                run_deployment(
                    found,
                    ServerProgram(partial(plan_sglang, found, accepted), _log_reader(checked.memory)),
                    self.launch,
                    place,
                )
            )
            server.resolved = await _read_back(server, asked, accepted, checked.notes)
            yield server

    def _visible(self, spec: RuntimeSpec) -> str | None:
        """Which GPUs the server will see."""
        name = "CUDA_VISIBLE_DEVICES"
        return spec.env.get(name) or self.launch.env.get(name) or os.environ.get(name)

    def _accepted_for(self, spec: RuntimeSpec) -> Accepted:
        """What the installed version takes, which must be the one that the spec asks for."""
        accepted = self._accepted
        if spec.version is not None and not is_release(spec.version, accepted.release):
            raise InputError(f"the config asks for sglang {spec.version}, installed is {accepted.release}")
        return accepted

    def _argument_check(self, version: str | None) -> ArgumentCheck | None:
        """The argument code of what is installed on this machine; else of a release that was added; else of what is installed
        behind a prefix or in a container.
        """
        if version not in self.checks:
            self.checks[version] = self._make_check(version)
        return self.checks[version]

    def _make_check(self, version: str | None) -> ArgumentCheck | None:
        if version is None and not self.launch.is_elsewhere:
            source = source_of_launch(self.launch, self._identity)  # it may be patched
            return None if source is None else ArgumentCheck(source, self._accepted)
        added = added_release(version or self._identity.version)
        if added is not None:
            return ArgumentCheck(source_of(added), flags_of_release(added.version))
        far = source_of_launch(self.launch, self._identity) if version is None else None
        return None if far is None else ArgumentCheck(far, self._accepted)

    @cached_property
    def _identity(self) -> RuntimeIdentity:
        return asyncio.run(Installed(self.launch).identity())

    @cached_property
    def _accepted(self) -> Accepted:
        accepted = asyncio.run(Installed(self.launch).accepted())
        if accepted.version < OLDEST:
            raise InputError(f"sglang {accepted.release} is installed; versions before {OLDEST} are not described")
        return accepted


def _log_reader(memory: MemoryForecast | None) -> LogReader:
    """What a server writes of a boot's steps and of a failure's cause."""
    chunk = None if memory is None else memory.fitting_chunk
    fits = "" if chunk is None else f"chunked_prefill_size: {chunk} should fit"
    return LogReader(say_progress, partial(refine, fits=fits))


@lru_cache(maxsize=64)
def _described(version: str) -> Accepted | None:
    """The flags of a version; None where they are not known."""
    try:
        return flags_of_release(version)
    except (InputError, ValueError):
        return None


def check_setting(
    spec: RuntimeSpec, accepted: Accepted, launch: Launch, said: Sequence[RoleAnswer] = ()
) -> SettingCheck:
    """All that is known of a setting before it boots; `said` is what the release's own argument code says to it.

    Raises:
        InputError: places that do not fit the topology, or no image.

    """
    asked = settle(spec)
    objections = judge(plan_sglang(asked, accepted, launch), asked, accepted)
    violations = [_refusal(one, accepted) for one in said if one.answer.verdict == "refused"]
    violations += [RuleViolation(one.rule, str(one)) for one in objections if one.severity == "error"]
    notes = [
        SettingNote(one.rule, str(one), one.severity == "overwritten") for one in objections if one.severity != "error"
    ]
    if any(_drafts_of_random_weights(own.knobs) for _, own in role_specs(asked)):
        message = "random weights accept no draft, so speculation would only be shown as slow"
        violations.append(RuleViolation("SIM01", f"SIM01: {message}; set simulated_accept_length"))
    memory = _memory_of(asked, accepted)
    if memory is not None and memory.verdict != "fits":
        line = _of_step(memory)
        violations += [RuleViolation("MM02", line)] if memory.verdict == "runs out" else []
        notes += [SettingNote("MM02", line, replaced=False)] if memory.verdict == "may run out" else []
    if config_json(asked.model) is None:
        notes.append(SettingNote("MD05", f"MD05: {asked.model} {_UNKNOWN_MODEL}", replaced=False))
    notes += _resolved_notes(asked, accepted, said)
    own = "its own argument code and " if said else ""
    basis = f"{own}the rules for sglang {accepted.release}"
    return SettingCheck(tuple(violations), tuple(notes), basis, _resolved(asked, accepted, said), memory)


def _memory_of(spec: RuntimeSpec, accepted: Accepted) -> MemoryForecast | None:
    """None of a deployment with several servers."""
    if (spec.topology or SINGLE) != SINGLE:
        return None
    device = None if spec.hardware is None else accelerator(spec.hardware)
    return forecast_memory(resolve(spec, SINGLE.roles[0], accepted.version, device))


def _of_step(memory: MemoryForecast) -> str:
    """Why a full prefill step does not fit, and the nearest chunk that does."""
    nearest = "" if memory.fitting_chunk is None else f"; chunked_prefill_size: {memory.fitting_chunk} fits"
    return (
        f"MM02: a prefill step of {memory.step_tokens:,} tokens takes {memory.step_gib:.1f} GiB ({memory.largest}), and weights, KV "
        f"pool and graphs leave {max(0.0, memory.left_gib + memory.step_gib):.1f}: it {memory.verdict} of memory under load{nearest}"
    )


def _resolved(spec: RuntimeSpec, accepted: Accepted, said: Sequence[RoleAnswer]) -> dict[str, JsonValue]:
    """Knobs as SGLang resolves them."""
    found: dict[str, JsonValue] = {}
    for one in said:
        place = "" if one.role == "server" else f"{one.role}."
        knobs = resolved_knobs([*KNOBS, *spec.knobs], one.answer.resolved, accepted)
        found |= {f"{place}{name}": value for name, value in knobs.items()}
    return found


def _unasked(check: SettingCheck, accepted: Accepted) -> SettingCheck:
    name = accepted.release
    message = f"sglang {name}'s own checks were not asked; `dsabench runtime add sglang=={name}` makes them available"
    return replace(check, notes=(*check.notes, SettingNote("unasked", message, replaced=False)))


def _refusal(said: RoleAnswer, accepted: Accepted) -> RuleViolation:
    """In SGLang's words, and where it says them."""
    role = "" if said.role == "server" else f"{said.role}: "
    place = said.answer.at.rpartition("/")[2]
    words = " ".join(f"{said.answer.kind}: {said.answer.text}".split())
    return RuleViolation(place, f"{role}sglang {accepted.release} refuses it: {words} ({said.answer.at})", by="runtime")


def _resolved_notes(spec: RuntimeSpec, accepted: Accepted, said: Sequence[RoleAnswer]) -> Iterator[SettingNote]:
    """What each knob becomes where it is not as asked; and what could not be asked."""
    knobs = {role.role: own.knobs for role, own in role_specs(spec)}
    for one in said:
        if one.answer.verdict == "cannot_say":
            message = f"sglang {accepted.release}'s own checks could not be asked: {one.answer.text}"
            yield SettingNote("unasked", message, replaced=False)
        for line in one.answer.warnings:
            yield SettingNote("logged", f"sglang {accepted.release} logs: {line}", replaced=False)
        for name, line in differences(knobs[one.role], one.answer.resolved, {}, accepted).items():
            yield SettingNote(name, line, replaced=True)


def _size(knobs: Mapping[str, KnobValue], name: str) -> int:
    value = knobs.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) else 1


def _drafts_of_random_weights(knobs: Mapping[str, KnobValue]) -> bool:
    return (
        knobs.get("load_format") == "dummy"
        and "speculative_algorithm" in knobs
        and "simulated_accept_length" not in knobs
    )


async def _read_back(
    server: Deployment, asked: RuntimeSpec, accepted: Accepted, notes: Sequence[SettingNote]
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
        lines = differences(knobs[part.what.role], told, facts, accepted).values()  # type: ignore[index]
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
        "notes": [note.line for note in notes],
        "slice": slice_of(asked.model),
    }
    return {**_plain(settings), "dsabench": _plain(said)}


def _plain(value: Mapping[str, object]) -> dict[str, JsonValue]:
    """Without what is absent, as JSON has it."""
    kept = {name: one for name, one in value.items() if one is not None and one not in ([], {})}
    try:
        return _JSON.validate_python(json.loads(json.dumps(kept)))
    except (TypeError, ValueError, ValidationError):
        return {}
