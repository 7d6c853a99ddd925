"""Whether the client could keep up. A client that was late measured itself, not the server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from time import perf_counter, process_time

import numpy as np

_TICK_S = 0.01

CPU_SHARE_MAX = 0.95
"""Of one core, over a run of at least `CPU_WINDOW_S`: the event loop had no idle time left, so frames queued."""
CPU_WINDOW_S = 1.0
LAG_P90_MS_MAX = 50.0
"""A tenth of all times stamped later than this. Preemption on a busy two-core machine stays below: it delays single
wake-ups by a few scheduler slices, and a CPU quota's pauses (up to 100 ms) hit fewer than one in ten."""
SEND_LAG_P90_MS_MAX = 50.0
SEND_LAG_SHARE_MAX = 0.1
"""A tenth of the requests left later than this after they could, and later than this share of a request's time: a
burst of a thousand requests takes longer to write, and that is nothing beside answers of seconds."""
LAG_P99_MS_WARN = 20.0
"""From here on a p99 of the client's own lag is worth a warning beside the numbers."""


@dataclass(frozen=True, slots=True)
class ClientHealth:
    """The load generator about itself, over the measured window."""

    cpu_s: float
    """CPU of this process while the clock ran; parsing comes after it."""
    cpu_share: float
    """`cpu_s` as a share of one core."""
    lag_p50_ms: float
    lag_p99_ms: float
    lag_max_ms: float
    """How late the event loop ran a timer, at any moment of the window."""
    send_lag_max_ms: float
    saturated: str | None = None
    """Why the numbers cannot be trusted and what to change; None when they can."""


class Watch:
    """Samples the event loop's lag on a fixed grid. Filled while `watching()` is open."""

    def __init__(self) -> None:
        self._lags_s: list[float] = []
        self._started_s, self._cpu_started_s = perf_counter(), process_time()
        self._wall_s = self._cpu_s = 0.0

    async def run(self) -> None:
        """Tick until cancelled. A pause counts for every tick it swallowed, not once."""
        due_s = perf_counter() + _TICK_S
        while True:
            await asyncio.sleep(due_s - perf_counter())
            now_s = perf_counter()
            while due_s <= now_s:
                self._lags_s.append(now_s - due_s)
                due_s += _TICK_S

    def stop(self) -> None:
        """End the window."""
        self._wall_s, self._cpu_s = perf_counter() - self._started_s, process_time() - self._cpu_started_s

    def health(self, late_s: Sequence[float], request_s: float) -> ClientHealth:
        """Sum up, together with how late each request left and what a request typically takes."""
        p50, p90, p99, worst = np.percentile(self._lags_s or [0.0], [50, 90, 99, 100]) * 1e3
        send_p90, send_worst = np.percentile(late_s or [0.0], [90, 100]) * 1e3
        share = self._cpu_s / self._wall_s
        return ClientHealth(
            self._cpu_s,
            share,
            float(p50),
            float(p99),
            float(worst),
            float(send_worst),
            _saturation(
                share if self._wall_s >= CPU_WINDOW_S else 0.0,
                float(p90),
                float(send_p90) if send_p90 > SEND_LAG_SHARE_MAX * request_s * 1e3 else 0.0,
            ),
        )


@asynccontextmanager
async def watching() -> AsyncIterator[Watch]:
    """Measure this process and its event loop for as long as the context is open."""
    watch = Watch()
    ticking = asyncio.create_task(watch.run())
    try:
        yield watch
    finally:
        watch.stop()
        ticking.cancel()
        await asyncio.wait([ticking])


def _saturation(cpu_share: float, lag_p90_ms: float, send_lag_p90_ms: float) -> str | None:
    advice = "lower max_concurrency or request_rate, or give the client a core of its own"
    if cpu_share > CPU_SHARE_MAX:
        return f"the load generator used {cpu_share:.0%} of a core; {advice}"
    if lag_p90_ms > LAG_P90_MS_MAX:
        return f"a tenth of its event loop's wake-ups were over {lag_p90_ms:.0f} ms late; {advice}"
    if send_lag_p90_ms > SEND_LAG_P90_MS_MAX:
        return f"a tenth of the requests left over {send_lag_p90_ms:.0f} ms late; {advice}"
    return None
