"""Which CPU cores the server and the measuring process use, and that no other measurement on the machine uses them."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from dsabench.runtimes.locks import holder, lock_folder, release, remove_unheld, try_lock

_MOST_CLIENT_CORES = 4
_TURN_S = 0.2
_TOPOLOGY = "/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list"


@dataclass(frozen=True, slots=True)
class Split:
    """Server and client cores; the same ones where there is only one."""

    server: tuple[int, ...]
    client: tuple[int, ...]

    @property
    def shared(self) -> bool:
        """Whether the client measures on the server's core."""
        return self.server == self.client


@dataclass(frozen=True, slots=True)
class Lease:
    """Cores that no other dsabench of this user measures on."""

    split: Split
    fds: tuple[int, ...]
    """The locks. Handed to a keeper (`Place.held_fds`), they last until its server is gone, whatever happens to us."""

    @property
    def server(self) -> tuple[int, ...]:
        """Cores for the server."""
        return self.split.server

    @property
    def client(self) -> tuple[int, ...]:
        """Cores for this process."""
        return self.split.client


def split_cores(cores: Sequence[int], most_client_cores: int = _MOST_CLIENT_CORES) -> Split:
    """One core is shared, two are one each; of more the client gets a quarter, but at most four.

    It gets whole physical cores where hardware threads come in pairs: a busy twin would slow the server.
    """
    ordered = by_physical_core(cores)
    if len(ordered) == 1:
        return Split((ordered[0],), (ordered[0],))
    share = min(most_client_cores, max(1, len(ordered) // 4))
    return Split(server=tuple(sorted(ordered[:-share])), client=tuple(sorted(ordered[-share:])))


def by_physical_core(cores: Sequence[int]) -> list[int]:
    """The cores with hardware threads of one physical core side by side."""
    return [core for group in _physical(sorted(set(cores))) for core in group]


@asynccontextmanager
async def lease_cores(
    cores: Sequence[int] | None = None,
    *,
    on_wait: Callable[[str], None] = lambda _: None,
    folder: Path | None = None,
) -> AsyncIterator[Lease]:
    """Hold the cores (all that this process may use), with this process pinned to the client's share of them.

    Waits while another process holds one of them, and tells whom it waits for.
    """
    wanted = sorted(os.sched_getaffinity(0) if cores is None else set(cores))
    place = folder or lock_folder()
    held: dict[Path, int] = {}
    try:
        for core in wanted:  # ascending: two that wait for each other cannot happen
            file = place / f"core-{core}.lock"
            held[file] = await _lock(file, f"core {core}", on_wait)
        lease = Lease(split_cores(wanted), tuple(held.values()))
        with pinned(lease.client):
            yield lease
    finally:
        for file, fd in held.items():
            release(fd, file)
        for stale in place.glob("port-*.lock"):  # of servers whose dsabench was killed
            remove_unheld(stale)


@contextmanager
def pinned(cores: Sequence[int]) -> Iterator[None]:
    """Every thread of this process, and those to come, on these cores; each put back where it was on leaving."""
    before: dict[int, set[int]] = {}
    home = os.sched_getaffinity(0)
    for thread in _threads():
        with suppress(ProcessLookupError):
            before[thread] = os.sched_getaffinity(thread)
            os.sched_setaffinity(thread, cores)
    try:
        yield
    finally:
        for thread in _threads():
            with suppress(ProcessLookupError):
                os.sched_setaffinity(thread, before.get(thread, home))


def _threads() -> list[int]:
    return [int(entry.name) for entry in Path("/proc/self/task").iterdir()]


async def _lock(file: Path, what: str, on_wait: Callable[[str], None]) -> int:
    told: int | None = -1
    while (fd := try_lock(file)) is None:
        pid = holder(file)
        if pid != told:
            told = pid
            on_wait(f"waiting for {what}, which {_describe(pid)} measures on")
        await asyncio.sleep(_TURN_S)
    return fd


def _describe(pid: int | None) -> str:
    if pid is None:
        return "another dsabench"
    try:
        alive = psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        alive = False
    return f"process {pid}" if alive else f"the server left by process {pid} (being stopped)"


def _physical(cores: Sequence[int]) -> list[list[int]]:
    """The cores grouped by physical core, in order of their first."""
    groups: dict[str, list[int]] = {}
    for core in cores:
        try:
            name = Path(_TOPOLOGY.format(core)).read_text().strip()
        except OSError:
            name = str(core)
        groups.setdefault(name, []).append(core)
    return list(groups.values())
