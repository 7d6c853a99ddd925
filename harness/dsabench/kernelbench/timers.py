"""How a call is timed, on a CPU and on a GPU: one at a time, or back to back. And what the machine can do at most."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Protocol

import torch

from dsakernels.candidates.candidate import Call, RestoringCall

_CEILING_SAMPLES = 9
_CEILING_LIMIT_S = 1.0
"""Of one of them: a CPU without bfloat16 instructions takes seconds for one product."""
_LINK_BYTES = 1 << 28
_LOOK_S = 0.02
"""Between two looks at the machine while calls run back to back."""


class Timer(Protocol):
    """Gives samples of one call's time in microseconds. Successive samples use successive inputs."""

    def sample(self) -> float:
        """One more sample."""
        ...

    def sustain(self, seconds: float, call_us: float, look: Callable[[], None]) -> float | None:
        """Microseconds of a call when they run back to back for so long, caches as each leaves them.

        `call_us`: about how long one takes. `look` is called every 20 ms or so while they run. None where something has
        to be restored before each call, so that they cannot.
        """
        ...


class CpuTimer:
    """As many calls a sample as take a millisecond, inputs in turn."""

    _SAMPLE_S = 1e-3

    def __init__(self, calls: Sequence[Call]) -> None:
        self._calls = calls
        self._next = 0
        for call in calls:
            call()
        slowest = max(self._once(call) for call in calls)
        self._inner = max(1, round(self._SAMPLE_S / slowest))

    def sample(self) -> float:
        """Median of the calls of one sample: a call that was interrupted does not move it."""
        times = []
        for _ in range(self._inner):
            times.append(self._once(self._calls[self._next]))
            self._next = (self._next + 1) % len(self._calls)
        return median(times) * 1e6

    def sustain(self, seconds: float, call_us: float, look: Callable[[], None]) -> float | None:
        """On the calling thread, so the time of `look` is left out."""
        if any(isinstance(call, RestoringCall) for call in self._calls):
            return None
        spent_s, number, runs = 0.0, 0, max(1, round(_LOOK_S * 1e6 / call_us))
        while spent_s < seconds:
            start = time.perf_counter()
            for _ in range(runs):
                self._calls[number % len(self._calls)]()
                number += 1
            spent_s += time.perf_counter() - start
            look()
        return spent_s / number * 1e6

    @staticmethod
    def _once(call: Call) -> float:
        renew, run = _parts(call)
        renew()
        start = time.perf_counter()
        run()
        return time.perf_counter() - start


class CudaTimer:
    """One call between two events, replayed from a CUDA graph after the L2 cache was overwritten.

    A call that cannot be captured (it waits for the GPU, or allocates outside the graph's pool) is launched instead; then
    the flush in front of it, 2 × L2 in size, hides the launch only where the host is fast enough. The launch of the
    graph itself, a few microseconds at most, is in every time.
    """

    def __init__(self, calls: Sequence[Call], *, captures: bool = True) -> None:
        for call in calls:
            for _ in range(3):  # compile, choose, allocate
                call()
        torch.cuda.synchronize()
        pool = torch.cuda.graph_pool_handle()  # they run one after the other and may use the same memory
        self._renewals, runs = zip(*map(_parts, calls), strict=True)
        self._calls = [_captured(run, pool) if captures else run for run in runs]
        l2_bytes = torch.cuda.get_device_properties().L2_cache_size
        self._flush = torch.empty(2 * l2_bytes, dtype=torch.int8, device="cuda")
        self._next = 0

    @property
    def is_graph(self) -> bool:
        """Whether every call runs from a graph."""
        return all(isinstance(call, _Replay) for call in self._calls)

    def sample(self) -> float:
        """One call with a cold L2 cache."""
        start, end = _event(), _event()
        call, renew = self._calls[self._next], self._renewals[self._next]
        self._next = (self._next + 1) % len(self._calls)
        renew()
        self._flush.zero_()
        start.record()
        call()
        end.record()
        end.synchronize()
        return float(start.elapsed_time(end)) * 1e3

    def sustain(self, seconds: float, call_us: float, look: Callable[[], None]) -> float | None:
        """One batch of calls is queued while another runs, so that the GPU never waits for the host."""
        if any(renew is not _nothing for renew in self._renewals):
            return None
        number, runs = 0, max(1, round(_LOOK_S * 1e6 / call_us))
        begun_s = time.monotonic()
        first = last = _event()
        first.record()
        while time.monotonic() - begun_s < seconds:
            for _ in range(runs):
                self._calls[number % len(self._calls)]()
                number += 1
            queued = _event()
            queued.record()
            look()
            last.synchronize()
            last = queued
        last.synchronize()
        return float(first.elapsed_time(last)) * 1e3 / number


def _parts(call: Call) -> tuple[Callable[[], None], Call]:
    """What comes in front of each run, and what is timed."""
    return (call.renew, call.run) if isinstance(call, RestoringCall) else (_nothing, call)


def _nothing() -> None:
    """Most calls leave everything as they found it."""


def _event() -> torch.cuda.Event:
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]


class _Replay:
    """A captured call. It keeps the call: the graph knows only addresses, and what the call prepared lies at them."""

    def __init__(self, graph: torch.cuda.CUDAGraph, call: Call, output: torch.Tensor) -> None:
        self._graph, self._call, self._output = graph, call, output

    def __call__(self) -> torch.Tensor:
        self._graph.replay()
        return self._output


def _captured(call: Call, pool: Any) -> Call:
    """What `torch.cuda.graph` does, but for its collection of garbage and return of memory, which take far longer."""
    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    try:
        with torch.cuda.stream(torch.cuda.Stream()):  # type: ignore[no-untyped-call]
            graph.capture_begin(pool=pool)
            try:
                output = call()
            finally:
                graph.capture_end()
    except RuntimeError:
        torch.cuda.synchronize()
        return call
    return _Replay(graph, call, output)


def timer_for(kind: str, calls: Sequence[Call], *, captures: bool = True) -> Timer:
    """The timer of a device kind; `captures` says whether a CUDA graph can hold the calls."""
    return CudaTimer(calls, captures=captures) if kind == "cuda" else CpuTimer(calls)


@dataclass(frozen=True, slots=True)
class MachineCeilings:
    """The most bytes a second of a copy (read and write counted), a kernel that writes what it reads, and one that only
    reads; bfloat16 products of large matrices. Each the best of 9 samples, or of those that fit in a second.

    The driver's copy alone is no ceiling: on an H200 it moves 2.76 TB/s where attention kernels read 4.16.
    """

    tb_s: float
    tflop_s: float
    link_gb_s: float | None = None
    """Of a copy from pinned host memory to the GPU; None where there is none, or nothing asked for crosses that link."""


def measure_ceilings(device: str, *, link: bool = False) -> MachineCeilings:
    """Measure them, in a few seconds at most. `link`: the host's link as well, if the device has one."""
    size, side = (1 << 30, 8192) if device == "cuda" else (1 << 26, 512)
    source = torch.randn(size // 4, device=device)
    target = torch.empty_like(source)
    copied_us = _best(device, lambda: target.copy_(source))
    written_us = _best(device, lambda: torch.neg(source, out=target))
    read_us = _best(device, source.amax)
    a, b = (torch.randn(side, side, device=device).to(torch.bfloat16) for _ in range(2))
    multiplied_us = _best(device, lambda: a @ b)
    moved = max(2 * size / copied_us, 2 * size / written_us, size / read_us)
    link_gb_s = _link_gb_s() if link and device == "cuda" else None
    return MachineCeilings(tb_s=moved / 1e6, tflop_s=2 * side**3 / multiplied_us / 1e6, link_gb_s=link_gb_s)


def _link_gb_s() -> float:
    """By the copy engine, 256 MiB at once: what a kernel reads there row by row comes no faster."""
    host = torch.empty(_LINK_BYTES, dtype=torch.uint8, pin_memory=True).fill_(1)
    target = torch.empty_like(host, device="cuda")
    copied_us = _best("cuda", lambda: target.copy_(host, non_blocking=True), captures=False)
    return _LINK_BYTES / copied_us / 1e3


def _best(device: str, call: object, *, captures: bool = True) -> float:
    assert callable(call)
    timer = timer_for(device, [call], captures=captures)
    started_s = time.monotonic()
    best = timer.sample()
    for _ in range(_CEILING_SAMPLES - 1):
        if time.monotonic() - started_s > _CEILING_LIMIT_S:
            break
        best = min(best, timer.sample())
    return best
