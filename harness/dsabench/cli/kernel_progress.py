"""What a kernels command says while it works, on standard error: a line a point, and what it waits for."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

from dsabench.kernelbench.conductor import WorkerLine
from dsabench.kernelbench.request import KernelBenchRequest
from dsabench.reporting.numbers import show_count

Hear = Callable[[WorkerLine], None]
_FIRST_S = 5.0
_PRINTABLE = dict.fromkeys(range(32), "\N{REPLACEMENT CHARACTER}")


class KernelProgress:
    """Counts points, and knows what the worker is at."""

    def __init__(self, request: KernelBenchRequest, python: str | None) -> None:
        self._points = self._done = self._known = 0
        self._names_wanted = bool(request.candidates)
        self._candidates: list[bool] = []
        self._at(f"{sys.executable if python is None else python} to start and import torch")
        say(f"waiting for {self._doing}")

    def hear(self, said: WorkerLine) -> None:
        """Say what is worth a line, and note the rest."""
        match said["is"]:
            case "device":
                say(f"{said['name']} ({said['arch']}), torch {said['torch']}")
                self._at("the kernels to be imported")
            case "candidate":
                self._candidates.append(said["reason"] is None)
                if self._names_wanted and said["reason"] is not None:
                    say(f"{said['operator']} {said['candidate']} does not run here: {said['reason']}")
            case "asked":
                self._known = int(str(said["known"]))
            case "doing":
                self._at(str(said["what"]))
            case "start":
                self._at(title_of(said))
            case "ceilings":
                link = f", {said['link_gb_s']:.1f} GB/s from the host" if said.get("link_gb_s") else ""
                say(f"ceilings: {said['tb_s']:.3f} TB/s, {said['tflop_s']:.1f} TFLOP/s{link}")
            case "begin":
                self._points = int(str(said["points"]))
                known = f", {self._known} known already" if self._known else ""
                run = f"{sum(self._candidates)} of {len(self._candidates)} candidates run here"
                say(f"{run}; {show_count(self._points, 'point')} to do{known}")

    def count(self, said: WorkerLine) -> str:
        """`3/12 `, for the line of a point; one that a candidate does not take is not counted."""
        if said.get("status") == "unavailable":
            return ""
        self._done += 1
        return f"{self._done}/{max(self._done, self._points)} "

    async def remind(self) -> None:
        """Where a worker is at one thing for long, say at what: after 5 s, 10 s, 20 s and so on."""
        while True:
            await asyncio.sleep(0.5)
            waited_s = time.monotonic() - self._since
            if waited_s >= self._next_s:
                self._next_s *= 2
                say(f"{waited_s:.0f} s: {self._doing}")

    def _at(self, doing: str) -> None:
        self._doing, self._since, self._next_s = doing, time.monotonic(), _FIRST_S


async def follow(lines: AsyncGenerator[WorkerLine, None], progress: KernelProgress, hear: Hear) -> None:
    """Hear what workers say, and remind of what they are at where they say nothing."""
    reminder = asyncio.create_task(progress.remind())
    try:
        async with aclosing(lines):
            async for said in lines:
                progress.hear(said)
                hear(said)
    finally:
        reminder.cancel()


def title_of(said: WorkerLine) -> str:
    """Operator, candidate, shape and dtype."""
    return f"{said['operator']} {said['candidate']} {said['shape_id']} {said['dtype']}"


def say_point(said: WorkerLine, count: str = "") -> None:
    """One plain line a point."""
    seed = f" seed {said['seed']}" if "seed" in said else ""
    figure = f"{said['median_us']:.1f} µs ± {said['mad_us']:.1f}, n {said['n']}" if "median_us" in said else ""
    errors = [f"{name} {said[name]:.2e}" for name in ("rel_err", "rounded_err") if said.get(name) is not None]
    words = [str(said["status"]), *errors, figure, _sustained(said), str(said.get("reason", ""))]
    say(f"{count}{title_of(said)}{seed}: {' '.join(filter(None, words))}")


def _sustained(said: WorkerLine) -> str:
    """`back to back 41.9 µs at 1,755 MHz and 642 W (power cap)`; without NVML only the time."""
    if said.get("sustained_us") is None:
        return ""
    clock, power, slowed = (said.get(f"sustained_{name}") for name in ("sm_mhz", "power_w", "slowed"))
    state = [f"{clock:,} MHz"] if clock else []
    state += [f"{power:.0f} W"] if power else []
    where = f" at {' and '.join(state)}" if state else ""
    return f"back to back {said['sustained_us']:.1f} µs{where}{f' ({slowed})' if slowed else ''}"


def say(text: str) -> None:
    """One line, whatever a kernel or a compiler put into it."""
    print(text.translate(_PRINTABLE), file=sys.stderr, flush=True)
