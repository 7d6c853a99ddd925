"""What the CPU and the GPUs did while the load was measured: metrics by name, and what of it changes how others are read.

Imports no pydantic.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import NamedTuple

from dsabench.load.judge.metrics import MetricValue
from dsabench.machine.cpu_use import warn_of_steal
from dsabench.machine.sampler import MachineSampler
from dsabench.machine.usage import CpuUsage, GpuUsage, MachineSamples, TimeWindow
from dsabench.model.sample import RequestSample

SLOWED_WARN = 0.01
"""Share of the looks at one GPU that found its clocks held down by heat or power supply. Tensor-parallel ranks wait for the
slowest, so one counts as all; and a clock that is down for less than 1 % of the time moves no number by the 1 % that a
comparison takes for a difference."""
IDLE_WARN = 0.25
"""Share of the time with requests in flight in which even the busiest GPU ran no kernel. Such time is the same for every
kernel: at a quarter a kernel that is 4 % faster shows as 3 %, at half as 2 %. Less than a quarter leaves the order of two
settings and most of their difference. NVML takes a sampling slot with any kernel in it for busy, so that the short gaps
between the steps of a decode with few requests are not seen at all, and what is seen is less than what was. The busiest GPU
is taken since the prefill servers of a pair and the stages of a pipeline wait for others by design."""


class MachineUse(NamedTuple):
    """Of the measured window."""

    cpu: CpuUsage
    gpus: tuple[GpuUsage, ...]
    """Those that the server computes on, as far as that is known and they are in this machine."""


def machine_use(observer: MachineSampler, start_s: float, samples: Sequence[RequestSample]) -> MachineUse | None:
    """From the first scheduled request to the last byte. None where it was not observed as long.

    `start_s` is 0.0 of the samples' times on the clock of `perf_counter`.
    """
    if observer.fault is not None or not samples:
        return None
    course = MachineSamples.of(observer)
    begun_s = start_s + min(sample.scheduled_s for sample in samples)
    window = TimeWindow(begun_s, start_s + max(sample.done_s for sample in samples))
    if not course.covers(window):
        return None
    work = [(start_s + sample.sent_s, start_s + sample.done_s) for sample in samples]
    gpus = tuple(course.gpu(place, window, work) for place in range(len(course.gpus)))
    return MachineUse(course.cpu(window), gpus)


class CompletedWork(NamedTuple):
    """What came of a run: completed requests, and their tokens."""

    requests: int
    input_tokens: int
    output_tokens: int


def machine_metrics(use: MachineUse, done: CompletedWork) -> dict[str, MetricValue]:
    """By the names of the metrics; what is not known of all GPUs is not in it."""
    cpu = use.cpu
    figures = {
        "host.cpu_busy_share": MetricValue(cpu.busy_share, cpu.cores),
        "host.steal_share": MetricValue(cpu.stolen_share, cpu.cores),
    }
    if cpu.pressure_share is not None:
        figures["host.cpu_pressure_share"] = MetricValue(cpu.pressure_share, 1)
    for name, gauge, over_gpus, counted in _GAUGES:
        if told := _of_all(use.gpus, gauge):
            figures[name] = MetricValue(over_gpus(told), sum(map(counted, use.gpus)))
    if used_j := _of_all(use.gpus, attrgetter("energy_j")):
        figures |= _energy(sum(used_j), len(used_j), done)
    return figures


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


_READINGS, _ONE = attrgetter("readings"), lambda _: 1
_GAUGES: tuple[
    tuple[str, Callable[[GpuUsage], float | None], Callable[[Sequence[float]], float], Callable[[GpuUsage], int]], ...
] = (
    ("gpu.busy_share.mean", attrgetter("busy_share"), _mean, attrgetter("busy_readings")),
    ("gpu.busy_share.min", attrgetter("busy_share"), min, attrgetter("busy_readings")),
    ("gpu.sm_clock_mhz.mean", attrgetter("sm_mhz"), _mean, _READINGS),
    ("gpu.sm_clock_mhz.min", attrgetter("sm_mhz_min"), min, _READINGS),
    ("gpu.power_w.mean", attrgetter("power_w"), _mean, _ONE),
    ("gpu.temperature_c.max", attrgetter("temperature_c"), max, _READINGS),
    ("gpu.memory_free_mib.min", attrgetter("free_mib"), min, _READINGS),
    ("gpu.throttled_share.max", attrgetter("throttled_share"), max, _READINGS),
    ("gpu.power_capped_share.max", attrgetter("capped_share"), max, _READINGS),
)
"""Metric, what it is of one GPU, of all of them, and what its n counts."""


def _of_all(gpus: Sequence[GpuUsage], gauge: Callable[[GpuUsage], float | None]) -> list[float]:
    """Empty where one does not tell: a mean or a sum of the others would pass for that of all."""
    told = [value for gpu in gpus if (value := gauge(gpu)) is not None]
    return told if len(told) == len(gpus) else []


def _energy(joules: float, gpus: int, done: CompletedWork) -> dict[str, MetricValue]:
    """All that the GPUs used, idle power included, over what came of it."""
    per_token = {
        "energy_per_output_token_j": done.output_tokens,
        "energy_per_token_j": done.input_tokens + done.output_tokens,
    }
    figures = {name: MetricValue(joules / tokens, done.requests) for name, tokens in per_token.items() if tokens}
    return figures | {"gpu.energy_j": MetricValue(joules, gpus)}


def machine_warnings(use: MachineUse) -> Iterator[str]:
    """One line each, where a number means something else than it seems to."""
    yield from _of_clocks(use.gpus)
    if (stolen := warn_of_steal(use.cpu.stolen_of_wanted, use.cpu.stolen_cores)) is not None:
        yield stolen
    yield from _of_idling(use.gpus)


def observed_warnings(use: MachineUse | None, unobserved: str | None) -> Iterator[str]:
    """The same, and why nothing was observed where it should have been."""
    if unobserved is not None:
        yield f"the machine was not observed: {unobserved}"
    if use is not None:
        yield from machine_warnings(use)


def _of_clocks(gpus: Sequence[GpuUsage]) -> Iterator[str]:
    slowed = [(share, gpu) for gpu in gpus if (share := gpu.throttled_share or 0.0) >= SLOWED_WARN]
    if slowed:
        share, worst = max(slowed, key=lambda one: one[0])
        others, were = (f" and {len(slowed) - 1} more", "were") if slowed[1:] else ("", "was")
        why = ", ".join(dict.fromkeys(word for _, gpu in slowed for word in gpu.slowed_by))
        yield (
            f"GPU {worst.name}{others} {were} throttled {share:.0%} of the time ({why}): these are times of lower clocks; see to "
            "cooling and power supply, and measure again"
        )


def _of_idling(gpus: Sequence[GpuUsage]) -> Iterator[str]:
    busy = _of_all(gpus, attrgetter("busy_at_work"))
    if busy and (idle := 1.0 - max(busy)) >= IDLE_WARN:
        which = "the GPU" if len(gpus) == 1 else "even the busiest GPU"
        part = "mostly" if idle >= 0.5 else "to a good part"
        yield (
            f"{which} was idle {idle:.0%} of the time with requests in flight: what was timed is {part} the host, and a "
            "difference between kernels shows smaller than it is; more concurrency, longer prompts or a faster CPU keep it busy"
        )


def machine_line(figures: Mapping[str, MetricValue]) -> str:
    """The most of it in one line: means over the GPUs, their energy together."""
    told = ", ".join(words.format(figures[name].value) for name, words in _SHOWN.items() if name in figures)
    return f"Machine: {told}"


_SHOWN = {
    "gpu.busy_share.mean": "GPU {:.0%} busy",
    "gpu.sm_clock_mhz.mean": "GPU clock {:.0f} MHz",
    "gpu.power_w.mean": "{:.0f} W per GPU",
    "gpu.temperature_c.max": "{:.0f} °C",
    "energy_per_output_token_j": "{:.3g} J per output token",
    "host.cpu_busy_share": "CPU {:.0%} busy",
    "host.steal_share": "{:.1%} stolen",
    "host.cpu_pressure_share": "a task waited for a core {:.0%} of the time",
}
