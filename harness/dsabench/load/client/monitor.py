"""Measure the client itself: how late its event loop is, what waits in its sockets; and end requests that take too long."""

from __future__ import annotations

import asyncio
import fcntl
import gc
import struct
import termios
from array import array
from dataclasses import dataclass
from time import perf_counter, perf_counter_ns, process_time, thread_time
from typing import Literal

from dsabench.load.client.connection import StreamConnection
from dsabench.load.client.dispatcher import Dispatcher
from dsabench.load.plan import RequestTimeouts

TICK_S = 0.025
"""Each tick wakes the loop once and costs as much as five frames."""
_LOOKS = 4
"""At sockets, per tick."""
_LATE_SHARE = 0.05
_CHECK_S_MAX = 1.0
"""A timeout may come this share of itself late, and no more than this many seconds."""
_INT = struct.Struct("i")


@dataclass(frozen=True, slots=True)
class WorkerVitals:
    """What one worker measured of itself, over the time that the clock ran."""

    wall_s: float
    cpu_s: float
    """Of its process."""
    loop_cpu_s: float
    """Of the thread that runs the event loop."""
    lags_s: array[float]
    """Lateness of the loop at every point of a grid of `TICK_S`; a pause counts for every point that it swallowed."""
    gc_pauses: int
    gc_s: float
    gc_max_s: float
    backlog_samples: int
    """Looks at a busy connection's socket."""
    backlog_hits: int
    """Of these, how many found bytes that had not been read yet."""
    busy_connections: float = 0.0
    """Mean over the ticks."""
    core_wait_s: float | None = None
    """How long the loop's thread could have run and waited for a core; None where the kernel does not tell."""
    core_turns: int | None = None
    """How often it got one."""


def _core_turns() -> tuple[int, int] | None:
    """Of this thread: ns that it waited for a core, and how often it got one (proc(5), `schedstat`)."""
    try:
        with open("/proc/thread-self/schedstat", "rb") as file:  # noqa: PTH123  (this module needs no pathlib)
            _, waited_ns, turns = file.read().split()
    except (OSError, ValueError):
        return None
    return int(waited_ns), int(turns)


class LoopMonitor:
    """Runs from `start` to `stop` on the loop it was made in."""

    def __init__(self, dispatcher: Dispatcher, timeouts: RequestTimeouts) -> None:
        self._dispatcher, self._timeouts = dispatcher, timeouts
        self._loop = asyncio.get_running_loop()
        self._lags_s = array("d")
        self._samples = self._hits = self._ticks = self._busy = 0
        self._gc_started_s = self._gc_s = self._gc_max_s = 0.0
        self._gc_pauses = 0
        limits = [s for s in (timeouts.first_byte_s, timeouts.stall_s, timeouts.total_s) if s is not None]
        check_s = min([_CHECK_S_MAX, *(_LATE_SHARE * limit for limit in limits)])
        self._every = max(round(check_s / TICK_S), 1) if limits else 0
        self._order: list[StreamConnection] = []

    def start(self) -> None:
        """Begin the window."""
        gc.callbacks.append(self._collected)
        self._wall_s, self._cpu_s, self._loop_cpu_s = perf_counter(), process_time(), thread_time()
        self._turns = _core_turns()
        self._due_s = perf_counter() + TICK_S
        self._timer = self._loop.call_later(TICK_S, self._tick)

    def stop(self) -> WorkerVitals:
        """End it."""
        self._timer.cancel()
        before, now = self._turns, _core_turns()
        waited = None if before is None or now is None else (now[0] - before[0], now[1] - before[1])
        if self._collected in gc.callbacks:
            gc.callbacks.remove(self._collected)
        return WorkerVitals(
            wall_s=perf_counter() - self._wall_s,
            cpu_s=process_time() - self._cpu_s,
            loop_cpu_s=thread_time() - self._loop_cpu_s,
            lags_s=self._lags_s,
            gc_pauses=self._gc_pauses,
            gc_s=self._gc_s,
            gc_max_s=self._gc_max_s,
            backlog_samples=self._samples,
            backlog_hits=self._hits,
            busy_connections=self._busy / max(self._ticks, 1),
            core_wait_s=None if waited is None else waited[0] / 1e9,
            core_turns=None if waited is None else waited[1],
        )

    def _tick(self) -> None:
        now_s = perf_counter()
        while self._due_s <= now_s:
            self._lags_s.append(now_s - self._due_s)
            self._due_s += TICK_S
        self._look_at_sockets()
        self._ticks += 1
        self._busy += self._dispatcher.running
        if self._every and self._ticks % self._every == 0:
            self._end_overdue()
        self._timer = self._loop.call_later(max(self._due_s - perf_counter(), 0.001), self._tick)

    def _look_at_sockets(self) -> None:
        """Ask the next few busy connections in turn whether bytes wait there."""
        for _ in range(_LOOKS):
            if not self._order:
                self._order = [c for c in self._dispatcher.connections if c.index is not None]
            if not self._order:
                return
            connection = self._order.pop()
            fd = connection.fileno()
            if connection.index is None or fd is None:
                continue
            self._samples += 1
            self._hits += _INT.unpack(fcntl.ioctl(fd, termios.FIONREAD, b"\0\0\0\0"))[0] > 0

    def _end_overdue(self) -> None:
        now_ns, timeouts = perf_counter_ns(), self._timeouts
        for connection in list(self._dispatcher.connections):
            if connection.index is None:
                continue
            took_s, quiet_s = (now_ns - connection.sent_ns) / 1e9, (now_ns - connection.last_ns) / 1e9
            begun = connection.last_ns != connection.sent_ns
            if timeouts.total_s is not None and took_s > timeouts.total_s:
                connection.fail(f"timeout: not finished after {timeouts.total_s:g} s")
            elif timeouts.first_byte_s is not None and not begun and took_s > timeouts.first_byte_s:
                connection.fail(f"timeout: no first byte after {timeouts.first_byte_s:g} s")
            elif timeouts.stall_s is not None and begun and quiet_s > timeouts.stall_s:
                connection.fail(f"timeout: nothing came for {timeouts.stall_s:g} s")

    def _collected(self, phase: Literal["start", "stop"], _info: dict[str, int]) -> None:
        if phase == "start":
            self._gc_started_s = perf_counter()
        else:
            pause_s = perf_counter() - self._gc_started_s
            self._gc_pauses += 1
            self._gc_s += pause_s
            self._gc_max_s = max(self._gc_max_s, pause_s)
