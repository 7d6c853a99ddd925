"""All processes of one deployment: started together, ready together, and ended together when one of them ends."""

from __future__ import annotations

import asyncio
import time
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from pydantic import JsonValue

from dsabench.errors import TrialFault
from dsabench.machine.server_gpus import gpu_range, held_by, visible_names
from dsabench.model.record import Stage
from dsabench.model.runtime import RuntimeSpec
from dsabench.model.topology import ROUTER, SINGLE
from dsabench.model.value import KnobValue
from dsabench.runtimes.command import Launch, Lifeline
from dsabench.runtimes.endpoint import INFO_PATHS, Endpoint
from dsabench.runtimes.faults import CheckedAfter, fault_of_start
from dsabench.runtimes.plan import LaunchPlan, PlannedProcess
from dsabench.runtimes.protocol import Place
from dsabench.runtimes.readiness import last_line, wait_ready
from dsabench.runtimes.sites import Berth, find_berth
from dsabench.runtimes.supervisor import Command, Process

_PORT_ATTEMPTS = 3
_LOG_MOST = 4 << 20
_CONFIRM_TIMEOUT_S = 60.0

_ENGINES = ("docker", "podman")
_REMOVE_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True)
class LogReader:
    """What a runtime reads out of the logs of its servers."""

    progress: Callable[[str], str | None] = last_line
    """The log's end → what the boot is doing."""
    refine: Callable[[TrialFault, str, dict[str, str]], TrialFault] = lambda fault, log, env: fault  # noqa: ARG005
    """A fault, the log and the server's variables → the fault with the cause that the log names."""


@dataclass(frozen=True, slots=True)
class ServerProgram:
    """How a setting is started and its logs are read."""

    plan: Callable[[Launch], LaunchPlan]
    """The commands, for a launch whose hosts and ports are filled in."""
    reader: LogReader = field(default_factory=LogReader)


@dataclass(frozen=True, slots=True)
class Part:
    """One running process of the deployment."""

    what: PlannedProcess
    process: Process
    reader: LogReader
    endpoint: Endpoint | None
    """Where it answers HTTP; None for nodes other than an instance's first."""

    @property
    def name(self) -> str:
        """`server`, `prefill-0`, `decode-1-node1`, `router`."""
        return part_name(self.what)

    def log(self) -> str:
        """All that it wrote, the last 4 MiB of it."""
        file = self.process.command.log
        try:
            with file.open("rb") as stream:
                stream.seek(max(0, file.stat().st_size - _LOG_MOST))
                return stream.read().decode(errors="replace")
        except OSError:
            return ""

    def refined(self, fault: TrialFault) -> TrialFault:
        """The fault with the cause that the whole log names."""
        return self.reader.refine(fault, self.log(), self.process.command.environment)


def part_name(process: PlannedProcess) -> str:
    """A name for files, telling the processes of a deployment apart."""
    node = f"-node{process.node_rank}" if process.node_rank else ""
    return (
        process.role if process.role in {"server", ROUTER} and not node else f"{process.role}-{process.instance}{node}"
    )


@dataclass(slots=True)
class Deployment:
    """A `Server` made of one or more processes. `front` is where requests go: the router, or the only server."""

    boot: str
    parts: tuple[Part, ...]
    front: Endpoint
    boot_s: float
    resolved: Mapping[str, JsonValue] = field(default_factory=dict)

    @property
    def base_url(self) -> str:
        """`http://HOST:PORT` of the front."""
        return self.front.base_url

    @property
    def servers(self) -> tuple[Part, ...]:
        """The parts that serve a model and answer HTTP."""
        return tuple(part for part in self.parts if part.endpoint is not None and part.what.role != ROUTER)

    @property
    def gpus(self) -> tuple[str, ...]:
        """Of those visible to each server, as many as it says from its first on. Of containers, whoever holds memory."""
        several = len(self.servers) > 1
        told = [self.resolved.get(part.name) if several else self.resolved for part in self.servers]
        places = [gpu_range(one) if isinstance(one, Mapping) else None for one in told]
        commands = [part.process.command for part in self.servers]
        if all(engine_of(command.argv) for command in commands):
            return held_by(places)
        if any(command.lifeline for command in commands):
            return ()
        found = [visible_names(place, command.environment) for place, command in zip(places, commands, strict=True)]
        return tuple(dict.fromkeys(name for names in found for name in names)) if all(found) else ()

    @property
    def log_file(self) -> Path | None:
        """Of a server that is a single process."""
        return self.parts[0].process.command.log if len(self.parts) == 1 else None

    async def info(self) -> Mapping[str, JsonValue]:
        """`/server_info` now; of several servers one entry each, by name."""
        return await self.infos("load")

    async def infos(self, stage: Stage) -> dict[str, JsonValue]:
        """The same at any stage."""
        told: dict[str, JsonValue] = {}
        for part in self.servers:
            assert part.endpoint is not None
            told[part.name] = dict(await part.endpoint.info(stage, INFO_PATHS))
        if len(told) > 1:
            return told
        (only,) = told.values()
        assert isinstance(only, dict)
        return only

    async def flush(self) -> None:
        """POST /flush_cache to every server."""
        for part in self.servers:
            assert part.endpoint is not None
            await part.endpoint.flush("warmup")

    async def change(self, knobs: Mapping[str, KnobValue]) -> None:
        """POST /set_internal_state to the server; see `Server.change`. Their names are the runtime's own."""
        (part,) = self.servers
        assert part.endpoint is not None
        await part.endpoint.change(knobs, "warmup")
        self.resolved = {**self.resolved, **knobs}

    async def died(self) -> None:
        """Raise TrialFault as soon as one of the processes ended by itself."""
        await _first_death(self.parts, "load")


async def _first_death(parts: Sequence[Part], stage: Stage) -> None:
    async def watch(part: Part) -> None:
        try:
            await part.process.died(stage)
        except TrialFault as fault:
            told = part.refined(fault)
            raise (_named(told, part.name) if len(parts) > 1 else told) from fault

    tasks = [asyncio.ensure_future(watch(part)) for part in parts]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        await done.pop()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _named(fault: TrialFault, name: str) -> TrialFault:
    return TrialFault(
        fault.kind, f"{name}: {fault.message}", stage=fault.stage, log_tail=fault.log_tail, transient=fault.transient
    )


@asynccontextmanager
async def run_deployment(
    spec: RuntimeSpec, program: ServerProgram, launch: Launch, place: Place
) -> AsyncIterator[Deployment]:
    """Serve while the context is open, with the commands that the program makes of the places.

    A port that another program took meanwhile is given up for the next ones.

    Raises:
        TrialFault: the boot failed, or (not_gone) something was still there after the stop.

    """
    async with AsyncExitStack() as stack:
        attempt = 1
        while True:
            try:
                server = await _deploy(stack, spec, program, launch, place)
                break
            except TrialFault as fault:
                if fault.kind != "port_in_use" or attempt == _PORT_ATTEMPTS:
                    raise
                attempt += 1
                place.on_progress("a port was taken meanwhile; trying others")
        yield server


async def _deploy(
    stack: AsyncExitStack, spec: RuntimeSpec, program: ServerProgram, launch: Launch, place: Place
) -> Deployment:
    topology = spec.topology or SINGLE
    async with AsyncExitStack() as attempt:
        berth = await find_berth(attempt, topology, launch.sites)
        started_s = time.perf_counter()
        lifeline = Lifeline(place.boot, place.stop_timeout_s, loopback=_looks_here(launch))
        plan = program.plan(replace(launch, sites=berth.sites, lifeline=lifeline))
        servers = [process for process in plan.processes if process.role != ROUTER]
        start = partial(_start, attempt, place, berth=berth, reader=program.reader, elsewhere=launch.is_elsewhere)
        parts = [await start(process, nodes=topology_nodes(spec, process)) for process in servers]
        await _all_ready(parts, place)
        for router in (process for process in plan.processes if process.role == ROUTER):
            # After the others: it gives up workers that do not answer yet.
            parts.append(await start(router, nodes=1))
            await _all_ready(parts[-1:], place)
        front = parts[-1] if parts[-1].what.role == ROUTER else parts[0]
        assert front.endpoint is not None
        server = Deployment(place.boot, tuple(parts), front.endpoint, time.perf_counter() - started_s)
        stack.push_async_exit(attempt.pop_all())
        return server


def topology_nodes(spec: RuntimeSpec, process: PlannedProcess) -> int:
    """Machines of the process's instance."""
    roles = {role.role: role.nodes for role in (spec.topology or SINGLE).roles}
    return roles[process.role]  # type: ignore[index]


def _looks_here(launch: Launch) -> bool:
    """No site names a machine, and no ssh brings a port of another here."""
    forwards = any(word.startswith("-L") or "localforward" in word.lower() for word in launch.command_prefix)
    return launch.first_host is None and not forwards


async def _start(
    stack: AsyncExitStack,
    place: Place,
    what: PlannedProcess,
    *,
    berth: Berth,
    reader: LogReader,
    elsewhere: bool,
    nodes: int,
) -> Part:
    name = part_name(what)
    try:
        place.folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise fault_of_start("folder", error.errno or 0, str(place.folder)) from error
    folder = place.folder.absolute()
    command = Command(
        argv=await _contained(stack, what, folder / f"{name}.cid"),
        cwd=folder,
        log=folder / f"{name}.log",
        boot=place.boot,
        env=what.env,
        cores=place.cores,
        stop_timeout_s=place.stop_timeout_s,
        held_fds=(*berth.fds, *place.held_fds),
        term_all=what.term_all,
        lifeline=elsewhere,
    )
    process = await stack.enter_async_context(Process(command))
    place.on_progress(f"starting {name}, process {process.pid}")
    endpoint = None if what.node_rank else Endpoint(berth.url(what.role, what.instance, nodes))
    return Part(what, process, reader, endpoint)


async def _contained(stack: AsyncExitStack, what: PlannedProcess, file: Path) -> tuple[str, ...]:
    """The command; where it runs a container here, one that is removed by its id afterwards."""
    engine = engine_of(what.argv)
    if engine is None:
        return what.argv
    await stack.enter_async_context(removed_after(engine, file))
    return with_id_file(what.argv, file)


async def _all_ready(parts: Sequence[Part], place: Place) -> None:
    """Return when every endpoint is; raise the first fault of any process."""
    ready = asyncio.ensure_future(_gather_ready(parts, place))
    dying = asyncio.ensure_future(_first_death(parts, "boot"))
    try:
        await asyncio.wait({ready, dying}, return_when=asyncio.FIRST_COMPLETED)
        if not dying.done() and ready.done() and ready.exception() is not None:
            await asyncio.wait({dying}, timeout=0.5)  # the same death, told with its cause
        if dying.done():
            await dying
        await ready
    finally:
        for task in (ready, dying):
            task.cancel()
        await asyncio.gather(ready, dying, return_exceptions=True)


async def _gather_ready(parts: Sequence[Part], place: Place) -> None:
    tasks = [
        asyncio.ensure_future(_part_ready(part, part.endpoint, place, several=len(parts) > 1))
        for part in parts
        if part.endpoint is not None
    ]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _part_ready(part: Part, endpoint: Endpoint, place: Place, *, several: bool) -> None:
    """`/health` is 503 until the first internal generation is through; `/health_generate` makes one of its own.

    With the warm-up request switched off `/health` alone says nothing of the model.
    """
    told = place if not several else replace(place, on_progress=lambda text: place.on_progress(f"{part.name}: {text}"))
    await wait_ready(part.process, endpoint, "/health", told, part.reader.progress)
    if part.what.role == ROUTER:
        return
    deadline_s = asyncio.get_running_loop().time() + place.ready_timeout_s
    while (answer := await endpoint.probe("/health_generate", _CONFIRM_TIMEOUT_S)) is not None:
        if answer == "HTTP 404":
            return
        if asyncio.get_running_loop().time() > deadline_s:
            message = f"/health_generate: {answer}, {place.ready_timeout_s:g} s after /health"
            raise TrialFault("boot_timeout", message, stage="boot", log_tail=part.process.log_tail())
        await asyncio.sleep(0.5)


def engine_of(argv: Sequence[str]) -> str | None:
    """The engine whose `run` starts the command on this machine; None for another command."""
    return argv[0] if len(argv) > 1 and argv[0] in _ENGINES and argv[1] == "run" else None


def with_id_file(argv: Sequence[str], file: Path) -> tuple[str, ...]:
    """The same command, told to write the container's id."""
    return (*argv[:2], "--cidfile", str(file), *argv[2:])


@asynccontextmanager
async def removed_after(engine: str, file: Path, env: dict[str, str] | None = None) -> AsyncIterator[None]:
    """On leaving, `ENGINE rm -f ID`, where a container was made. Enter it before the process that makes it.

    Raises:
        TrialFault: kind not_gone: the engine could not remove it. As a note where another error is under way.

    """
    file.unlink(missing_ok=True)  # engines refuse to write over one
    async with CheckedAfter(lambda: _remove(engine, file, env)):
        yield


async def _remove(engine: str, file: Path, env: dict[str, str] | None) -> TrialFault | None:
    try:
        container = file.read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return None
    if not container.isalnum():
        return None
    try:
        process = await asyncio.create_subprocess_exec(
            engine, "rm", "-f", container, stdin=DEVNULL, stdout=DEVNULL, stderr=PIPE, env=env
        )
        async with asyncio.timeout(_REMOVE_TIMEOUT_S):
            _, said = await process.communicate()
    except (OSError, TimeoutError) as error:
        return TrialFault("not_gone", f"container {container[:12]}: {engine} rm: {error or 'no answer'}", stage="stop")
    words = " ".join(said.decode(errors="replace").split())
    if process.returncode == 0 or "no such container" in words.lower():
        file.unlink(missing_ok=True)
        return None
    return TrialFault("not_gone", f"container {container[:12]} is still there: {words[:200]}", stage="stop")
