"""What every runtime offers: say what is installed, and serve a spec for as long as a context is open."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

from pydantic import JsonValue

from dsabench.machine.checks import Finding
from dsabench.model.environment import RuntimeIdentity
from dsabench.model.runtime import RuntimeSpec, SettingCheck
from dsabench.model.topology import RoleHosts
from dsabench.model.value import KnobValue
from dsabench.runtimes.command import Launch
from dsabench.runtimes.plan import LaunchPlan
from dsabench.runtimes.readback import KnobReadback


@dataclass(frozen=True, slots=True)
class Place:
    """Where a server is started; nothing of it changes what is measured, but the cores."""

    folder: Path
    """Working directory of the server and home of its log; made if it is missing."""
    cores: tuple[int, ...] = ()
    """CPU cores the server may use; empty leaves its affinity alone."""
    held_fds: tuple[int, ...] = ()
    """Descriptors kept open until nothing of the server is left, even when this process is killed (`Lease.fds`)."""
    ready_timeout_s: float = 1800.0
    stop_timeout_s: float = 20.0
    """From TERM to KILL."""
    on_progress: Callable[[str], None] = field(default=lambda _: None)
    """Told in a few words what the boot is doing."""
    boot: str = field(default_factory=lambda: str(uuid.uuid4()))
    """Names the boot; its processes carry it in their environment."""


@dataclass(frozen=True, slots=True)
class AttentionShape:
    """Attention as a rank computes it: the key of a tuned table."""

    runtime: Literal["sglang", "reference"]
    heads_per_rank: int
    index_topk: int
    layers: int
    device: str | None = None
    """As the runtime names it in a table's key; None if the setting names no hardware."""
    strategy: str | None = "tp1"
    """How the deployment spreads that the rank is of, as `dp8,ep8`; None where it has no such word (nodes, roles, PP, CP)."""


class Server(Protocol):
    """One running server."""

    @property
    def boot(self) -> str:
        """The place's `boot`: one uuid for one server process."""

    @property
    def base_url(self) -> str:
        """`http://127.0.0.1:PORT`."""

    @property
    def boot_s(self) -> float:
        """Seconds from start to ready."""

    @property
    def resolved(self) -> Mapping[str, JsonValue]:
        """What the runtime says it runs with, read back when it was ready."""

    @property
    def gpus(self) -> tuple[str, ...]:
        """Numbers or uuids of all GPUs that it computes on; empty where it has none, or not all are known to be here."""

    @property
    def log_file(self) -> Path | None:
        """What its scheduler writes; None where that is not here, or not in one file."""

    async def info(self) -> Mapping[str, JsonValue]:
        """`/server_info` now (counters included).

        Raises:
            TrialFault: it does not answer.

        """

    async def flush(self) -> None:
        """Empty the prefix cache.

        Raises:
            TrialFault: it does not answer, or refuses for longer than 30 s.

        """

    async def change(self, knobs: Mapping[str, KnobValue]) -> None:
        """Change reload-free knobs of a server that stands alone; `resolved` tells them from then on.

        Raises:
            TrialFault: it does not answer (unreachable), or does not change them (bad_response).

        """

    async def died(self) -> None:
        """Return never while the server lives.

        Raises:
            TrialFault: as soon as it ended by itself; carries the log's tail.

        """


class Runtime(Protocol):
    """A kind of server. Implementations: `reference`, `sglang`, `external`."""

    @property
    def launch(self) -> Launch:
        """Where and with what it is started."""

    async def identity(self, version: str | None = None) -> RuntimeIdentity:
        """What is installed, found without booting it; with `version`, what a plan for that release is made for.

        Raises:
            InputError: the interpreter or package that the config names is not there, or the release is not known.

        """

    @property
    def releases(self) -> tuple[str, ...]:
        """Releases that a plan can be made for without an installation, oldest first."""

    def check(self, specs: Sequence[RuntimeSpec], version: str | None = None) -> tuple[SettingCheck, ...]:
        """One answer per setting, in order, for the installed version or a release.

        Raises:
            InputError: what is wrong with the launch itself (sites, image), whatever the setting.

        """

    def nearest(self, spec: RuntimeSpec, version: str | None = None) -> tuple[str, ...] | None:
        """The fewest knobs without which a refused setting runs; None if none is found, empty if nothing refuses it.

        Raises:
            InputError: as `check`.

        """

    def plan(
        self,
        spec: RuntimeSpec,
        version: str | None = None,
        *,
        sites: Mapping[str, RoleHosts] | None = None,
        cores: Sequence[int] = (),
    ) -> LaunchPlan:
        """The commands of a setting for the installed version or a release. `sites` win over those of the config.

        No processes where somebody else starts the server.

        Raises:
            InputError: places that do not fit, a knob that the runtime lacks, or nothing is installed.

        """

    def attention(self, spec: RuntimeSpec) -> AttentionShape:
        """What tables for the setting have as their key.

        Raises:
            InputError: it reads no tables, or the widths of the model are not known.

        """

    def gpus(self, spec: RuntimeSpec) -> int:
        """Number of GPUs that a setting takes on all its machines; 0 if that is not known, or on a CPU."""

    def readback(self, spec: RuntimeSpec, resolved: Mapping[str, JsonValue], version: str) -> tuple[KnobReadback, ...]:
        """Each knob of a setting as asked, as it ran by what `Server.resolved` said, and whether they differ."""

    async def examine(self, driver_cuda: str | None) -> list[Finding]:
        """What `doctor` says of the installation. `driver_cuda` is the CUDA version that the driver serves up to.

        Raises:
            InputError: the interpreter that was named cannot be run.

        """

    def serve(self, spec: RuntimeSpec, place: Place) -> AbstractAsyncContextManager[Server]:
        """Boot, yield when ready, stop on leaving, and prove that port and processes are gone.

        Raises:
            TrialFault: the boot failed, or something was still there after the stop.

        """


class PlainRuntime:
    """A runtime without rules, without releases to plan for, and with GPUs that only a boot tells."""

    @property
    def releases(self) -> tuple[str, ...]:
        """None; see `Runtime.releases`."""
        return ()

    def check(self, specs: Sequence[RuntimeSpec], version: str | None = None) -> tuple[SettingCheck, ...]:
        """Nothing is known; see `Runtime.check`."""
        del version
        return (SettingCheck(),) * len(specs)

    def nearest(self, spec: RuntimeSpec, version: str | None = None) -> tuple[str, ...] | None:
        """Nothing is refused; see `Runtime.nearest`."""
        del spec, version
        return ()

    def gpus(self, spec: RuntimeSpec) -> int:
        """Not known; see `Runtime.gpus`."""
        del spec
        return 0
