"""A server that somebody else started: attached to, measured, flushed, never started or stopped."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from pydantic import JsonValue

from dsabench.errors import InputError, TrialFault
from dsabench.http import accepts_connections
from dsabench.machine.checks import Finding
from dsabench.machine.server_gpus import gpus_of_address
from dsabench.model.environment import RuntimeIdentity
from dsabench.model.runtime import RuntimeSpec
from dsabench.model.topology import RoleHosts
from dsabench.model.value import KnobValue, digest
from dsabench.runtimes.command import Launch
from dsabench.runtimes.endpoint import INFO_PATHS, Endpoint
from dsabench.runtimes.plan import LaunchPlan
from dsabench.runtimes.protocol import AttentionShape, Place, PlainRuntime
from dsabench.runtimes.readback import KnobReadback, read_knobs

_PULSE_INTERVAL_S = 2.0
_PULSE_TIMEOUT_S = 5.0
_MISSED_PULSES = 3
_PASSING = {
    *("random_seed", "startup_time", "start_time", "uptime_s", "launch_command", "pid", "status"),
    *("port", "nccl_port", "dist_init_addr", "internal_states", "counters"),
}
"""Entries of /server_info that differ from boot to boot of the same setting, or while it runs."""


@dataclass(frozen=True)
class ExternalRuntime(PlainRuntime):
    """A `Runtime` for `kind: external`."""

    launch: Launch

    async def identity(self, version: str | None = None) -> RuntimeIdentity:
        """What the server says of itself.

        Its files are out of reach, so `wheel_hash` says `reported:` and covers the settings in /server_info: the same
        URL with other flags is another environment, and is not taken for measured already.
        """
        if version is not None:
            raise InputError("a plan for another version is for kind sglang")
        try:
            info = await Endpoint(self._base_url).info("boot", INFO_PATHS)
        except TrialFault as fault:
            hint = "; start the server first" if fault.kind == "unreachable" else ""
            raise InputError(f"runtime.base_url: {fault.message}{hint}") from fault
        told = info.get("version")
        if not isinstance(told, str):
            raise InputError(f"runtime.base_url: {self._base_url} does not tell its version in /server_info")
        return RuntimeIdentity(kind="external", version=told, wheel_hash=f"reported:{_digest_of_settings(info)}")

    def plan(
        self,
        spec: RuntimeSpec,
        version: str | None = None,
        *,
        sites: Mapping[str, RoleHosts] | None = None,
        cores: Sequence[int] = (),
    ) -> LaunchPlan:
        """Nothing to start; see `Runtime.plan`."""
        del version, sites, cores
        return LaunchPlan((), note=f"attached to {spec.base_url}: somebody else started it")

    def attention(self, spec: RuntimeSpec) -> AttentionShape:
        """Not known; see `Runtime.attention`."""
        raise InputError(f"runtime.kind {spec.kind}: tables are for sglang and the reference runtime")

    def readback(self, spec: RuntimeSpec, resolved: Mapping[str, JsonValue], version: str) -> tuple[KnobReadback, ...]:
        """Under the names of its own; see `Runtime.readback`."""
        del version
        return read_knobs(spec, resolved, resolved.get, by_text=False)

    async def examine(self, driver_cuda: str | None) -> list[Finding]:
        """Nothing is installed here; see `Runtime.examine`."""
        del driver_cuda
        return []

    @asynccontextmanager
    async def serve(self, spec: RuntimeSpec, place: Place) -> AsyncIterator[AttachedServer]:
        """Attach; see `Runtime.serve`. Leaving the context leaves the server alone."""
        for what, given in (("base", spec.knobs), ("env", spec.env)):
            if given:
                raise InputError(
                    f"runtime.{what}: {min(given)} cannot be set on an external server, which runs already"
                )
        if spec.base_url is None:
            raise InputError("runtime.base_url: an external server needs one")
        endpoint = Endpoint(spec.base_url.rstrip("/"))
        started_s = time.perf_counter()
        while (answer := await endpoint.probe("/health", _PULSE_TIMEOUT_S)) is not None:
            if time.perf_counter() - started_s > place.ready_timeout_s or answer.startswith("cannot connect"):
                raise TrialFault("unreachable", f"{spec.base_url}/health: {answer}", stage="boot")
            await asyncio.sleep(0.5)
        resolved = await endpoint.info("boot", INFO_PATHS)
        boot_s = time.perf_counter() - started_s
        gpus = await asyncio.to_thread(gpus_of_address, spec.base_url, resolved)
        yield AttachedServer(place.boot, endpoint, boot_s, resolved, gpus)

    @property
    def _base_url(self) -> str:
        if self.launch.base_url is None:
            raise InputError("runtime.base_url: an external server needs one")
        return self.launch.base_url.rstrip("/")


@dataclass(frozen=True, slots=True)
class AttachedServer:
    """A `Server` whose process is not ours."""

    boot: str
    endpoint: Endpoint
    boot_s: float
    """Seconds until it answered."""
    resolved: Mapping[str, JsonValue]
    gpus: tuple[str, ...] = ()

    @property
    def base_url(self) -> str:
        """As the spec gives it, without a slash at its end."""
        return self.endpoint.base_url

    @property
    def log_file(self) -> Path | None:
        """Somebody else's."""
        return None

    async def info(self) -> Mapping[str, JsonValue]:
        """`/server_info` (or its old name) now."""
        return await self.endpoint.info("load", INFO_PATHS)

    async def flush(self) -> None:
        """POST /flush_cache."""
        await self.endpoint.flush("warmup")

    async def change(self, knobs: Mapping[str, KnobValue]) -> None:
        """Never: its settings are somebody else's."""
        raise TrialFault("bad_response", f"{', '.join(knobs)}: the server is not ours to change", stage="warmup")

    async def died(self) -> None:
        """Raise TrialFault once it has accepted no connection three times in a row.

        Only connects: a health request may generate a token, and would be measured too.
        """
        missed = 0
        while missed < _MISSED_PULSES:
            await asyncio.sleep(_PULSE_INTERVAL_S if missed == 0 else _PULSE_INTERVAL_S / 4)
            missed = 0 if await accepts_connections(self.base_url) else missed + 1
        raise TrialFault("unreachable", f"{self.base_url} accepts no connection any more", stage="load")


def _digest_of_settings(info: Mapping[str, JsonValue]) -> str:
    """sha256 over the settings, those in nested objects included."""
    return digest(json.dumps(_settings(info), sort_keys=True))


def _settings(info: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    return {
        name: _settings(value) if isinstance(value, dict) else value
        for name, value in info.items()
        if name not in _PASSING
    }
