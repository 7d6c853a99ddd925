"""The vocabulary of a load test's metrics: name, unit, which direction is better, meaning.

Names carry their unit; a statistic follows after a dot. A measurement holds a subset: what could not be measured, or
has too few requests behind it for its percentile, is not there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Direction = Literal["maximize", "minimize"]

STATISTICS: dict[str, str] = {
    "mean": "arithmetic mean",
    "p50": "median",
    "p90": "90th percentile",
    "p95": "95th percentile",
    "p99": "99th percentile",
    "min": "smallest",
    "max": "largest",
}


@dataclass(frozen=True, slots=True)
class MetricInfo:
    """What one metric means."""

    name: str
    unit: str
    direction: Direction | None
    """None where neither is better: it tells the conditions of a measurement, and cannot be an objective."""
    meaning: str

    @property
    def better(self) -> Literal["higher", "lower"]:
        """In words: `higher is better`. Only of a metric with a direction."""
        assert self.direction is not None, "the config refuses such an objective"
        return "higher" if self.direction == "maximize" else "lower"


_PLAIN = (
    MetricInfo("output_throughput_tok_s", "tok/s", "maximize", "generated tokens per second of the measurement"),
    MetricInfo("input_throughput_tok_s", "tok/s", "maximize", "prompt tokens per second of the measurement"),
    MetricInfo("total_throughput_tok_s", "tok/s", "maximize", "prompt and generated tokens per second"),
    MetricInfo("request_throughput_req_s", "req/s", "maximize", "completed requests per second"),
    MetricInfo(
        "accept_length.mean", "tokens", "maximize", "tokens per decode step and request, mean over the requests"
    ),
    MetricInfo("accept_length.weighted", "tokens", "maximize", "all tokens over all decode steps of the requests"),
    MetricInfo("goodput_req_s", "req/s", "maximize", "completed requests per second that met every limit of the SLO"),
    MetricInfo(
        "slo_attainment", "share", "maximize", "requests that met every limit of the SLO, of all that were sent"
    ),
    MetricInfo("duration_s", "s", "minimize", "first scheduled request to last received byte"),
)

_PER_REQUEST = (
    MetricInfo("ttft_ms", "ms", "minimize", "time to first token, from sending"),
    MetricInfo("ttft_from_schedule_ms", "ms", "minimize", "time to first token, from the scheduled time"),
    MetricInfo("tpot_ms", "ms", "minimize", "time per output token after the first"),
    MetricInfo("itl_ms", "ms", "minimize", "gap between consecutive tokens"),
    MetricInfo("e2e_ms", "ms", "minimize", "sending to last token"),
    MetricInfo("e2e_from_schedule_ms", "ms", "minimize", "scheduled time to last token"),
    MetricInfo("queue_wait_ms", "ms", "minimize", "scheduled time to sending: the wait in the client"),
)

_MACHINE = (
    MetricInfo(
        "energy_per_output_token_j",
        "J/tok",
        "minimize",
        "energy of the GPUs over all generated tokens, idle power included",
    ),
    MetricInfo("energy_per_token_j", "J/tok", "minimize", "the same over prompt and generated tokens"),
    MetricInfo("gpu.energy_j", "J", "minimize", "energy of all GPUs of the server in the measurement"),
    MetricInfo("gpu.power_w.mean", "W", None, "power of a GPU, mean over time and GPUs"),
    MetricInfo("gpu.busy_share.mean", "share", None, "time in which a GPU ran a kernel, mean over the GPUs"),
    MetricInfo("gpu.busy_share.min", "share", None, "the same of the least busy GPU"),
    MetricInfo("gpu.sm_clock_mhz.mean", "MHz", None, "clock of the multiprocessors, mean over time and GPUs"),
    MetricInfo("gpu.sm_clock_mhz.min", "MHz", None, "the lowest that was seen"),
    MetricInfo("gpu.temperature_c.max", "°C", None, "highest temperature of a GPU"),
    MetricInfo(
        "gpu.throttled_share.max", "share", None, "time in which heat or power supply slowed the worst GPU down"
    ),
    MetricInfo(
        "gpu.power_capped_share.max", "share", None, "time in which its power limit held the worst GPU's clocks"
    ),
    MetricInfo("host.cpu_busy_share", "share", None, "time of the measured cores that anybody used"),
    MetricInfo("host.steal_share", "share", None, "time of the measured cores that the hypervisor took"),
    MetricInfo("host.cpu_pressure_share", "share", None, "time in which some task of the machine waited for a core"),
)
"""Of the machine during the measurement: what it used, and the conditions under which the other numbers came about."""

_STEADY_PLAIN = ("output_throughput_tok_s", "request_throughput_req_s", "accept_length.mean", "accept_length.weighted")
_STEADY_LATENCIES = ("ttft_ms", "tpot_ms", "itl_ms", "e2e_ms")


def _with_statistics(family: MetricInfo) -> list[MetricInfo]:
    return [
        MetricInfo(f"{family.name}.{statistic}", family.unit, family.direction, f"{family.meaning}: {words}")
        for statistic, words in STATISTICS.items()
    ]


def _in_steady_state(metric: MetricInfo) -> MetricInfo:
    return MetricInfo(f"steady.{metric.name}", metric.unit, metric.direction, f"{metric.meaning}, in steady state")


_WHOLE_RUN = (*_PLAIN, *(metric for family in _PER_REQUEST for metric in _with_statistics(family)))

METRICS: dict[str, MetricInfo] = {
    metric.name: metric
    for metric in (
        *_WHOLE_RUN,
        *_MACHINE,
        *(
            _in_steady_state(metric)
            for metric in _WHOLE_RUN
            if metric.name in _STEADY_PLAIN or metric.name.partition(".")[0] in _STEADY_LATENCIES
        ),
    )
}
"""Every name that a constraint or a comparison may use."""

OBJECTIVES: tuple[str, ...] = tuple(sorted(name for name, metric in METRICS.items() if metric.direction is not None))
"""Those that an objective may use."""
