"""Boots a server that is one local command with one HTTP port, and takes it down again."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from pydantic import JsonValue

from dsabench.errors import TrialFault
from dsabench.machine.server_gpus import gpu_range, visible_names
from dsabench.runtimes.endpoint import Endpoint
from dsabench.runtimes.faults import fault_of_start
from dsabench.runtimes.ports import HOST, PortLease
from dsabench.runtimes.protocol import Place
from dsabench.runtimes.readiness import wait_ready
from dsabench.runtimes.supervisor import Command, Process

_PORT_ATTEMPTS = 3
LOG_NAME = "server.log"


@dataclass(frozen=True, slots=True)
class Recipe:
    """How one kind of server is started and asked."""

    argv: Callable[[int], tuple[str, ...]]
    """Port → command line."""
    env: Mapping[str, str]
    ready_path: str = "/health"
    info_paths: tuple[str, ...] = ("/server_info",)


@dataclass(frozen=True, slots=True)
class BootedServer:
    """A `Server` whose process is ours."""

    process: Process
    endpoint: Endpoint
    recipe: Recipe
    boot_s: float
    resolved: Mapping[str, JsonValue]

    @property
    def boot(self) -> str:
        """The uuid that its processes carry in their environment."""
        return self.process.command.boot

    @property
    def base_url(self) -> str:
        """`http://127.0.0.1:PORT`."""
        return self.endpoint.base_url

    @property
    def gpus(self) -> tuple[str, ...]:
        """Of those visible to its process, as many as it says from the first on."""
        return visible_names(gpu_range(self.resolved), self.process.command.environment)

    async def info(self) -> Mapping[str, JsonValue]:
        """`/server_info` now."""
        return await self.endpoint.info("load", self.recipe.info_paths)

    async def flush(self) -> None:
        """POST /flush_cache."""
        await self.endpoint.flush("warmup")

    async def died(self) -> None:
        """Raise TrialFault as soon as the process ended by itself."""
        await self.process.died("load")


@asynccontextmanager
async def boot(recipe: Recipe, place: Place) -> AsyncIterator[BootedServer]:
    """Serve while the context is open. A port that another program took meanwhile is given up for the next one.

    Raises:
        TrialFault: the boot failed, or (not_gone) a process or the port was still there after the stop.

    """
    async with AsyncExitStack() as stack:
        yield await _boot_on_some_port(stack, recipe, place)


async def _boot_on_some_port(stack: AsyncExitStack, recipe: Recipe, place: Place) -> BootedServer:
    attempt = 1
    while True:
        try:
            return await _boot_once(stack, recipe, place)
        except TrialFault as fault:
            if fault.kind != "port_in_use" or attempt == _PORT_ATTEMPTS:
                raise
            attempt += 1
            place.on_progress("the port was taken meanwhile; trying another")


async def _boot_once(stack: AsyncExitStack, recipe: Recipe, place: Place) -> BootedServer:
    async with AsyncExitStack() as attempt:
        lease = await attempt.enter_async_context(PortLease())
        endpoint = Endpoint(f"http://{HOST}:{lease.port}")
        started_s = time.perf_counter()
        process = await attempt.enter_async_context(Process(_command(recipe, place, lease)))
        place.on_progress(f"starting, process {process.pid}")
        await wait_ready(process, endpoint, recipe.ready_path, place)
        boot_s = time.perf_counter() - started_s
        resolved = await endpoint.info("boot", recipe.info_paths)
        stack.push_async_exit(attempt.pop_all())
        return BootedServer(process, endpoint, recipe, boot_s, resolved)


def _command(recipe: Recipe, place: Place, lease: PortLease) -> Command:
    try:
        place.folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise fault_of_start("folder", error.errno or 0, str(place.folder)) from error
    return Command(
        argv=recipe.argv(lease.port),
        cwd=place.folder,
        log=place.folder / LOG_NAME,
        boot=place.boot,
        env=recipe.env,
        cores=place.cores,
        stop_timeout_s=place.stop_timeout_s,
        held_fds=(lease.fd, *place.held_fds),
    )
