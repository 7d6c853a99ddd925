"""What a reader of a run's numbers must know beside them, one line each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from dsabench.load.figures import QUANTILES
from dsabench.load.generate import Run
from dsabench.load.health import LAG_P99_MS_WARN
from dsabench.load.machine import observed_cautions
from dsabench.load.request_cautions import request_cautions
from dsabench.load.standstill import standstill_cautions
from dsabench.load.steady import Unsteady, Window
from dsabench.model.record import Metric
from dsabench.model.sample import Times
from dsabench.model.workload import Workload
from dsabench.stats.percentiles import observations_needed


def cautions(
    run: Run,
    workload: Workload,
    latencies: Mapping[str, Times],
    metrics: Mapping[str, Metric],
    steady: Window | Unsteady,
) -> Iterator[str]:
    """All lines, what spoils most first."""
    yield from standstill_cautions(run.samples, run.client.lag_max_ms)
    yield from request_cautions(run.samples, workload.dataset, in_sessions=workload.sessions is not None)
    yield from _of_accept_length(metrics)
    yield from _refusals(latencies)
    if isinstance(steady, Unsteady):
        yield f"no steady state: {steady.reason}"
    yield from _of_client(run, workload)
    yield from observed_cautions(run.machine, run.unobserved)


def _of_accept_length(metrics: Mapping[str, Metric]) -> Iterator[str]:
    if "accept_length.lifetime" in metrics:
        yield (
            "no request told its accept length: accept_length.lifetime is the server's average since it started, "
            "warm-up and earlier runs included"
        )


def _refusals(latencies: Mapping[str, Times]) -> Iterator[str]:
    """One line per quantile that some latency has too few observations for."""
    for label, q in QUANTILES.items():
        refused = [
            f"{name} ({len(values)})" for name, values in latencies.items() if 0 < len(values) < observations_needed(q)
        ]
        if refused:
            yield f"no {label} from fewer than {observations_needed(q)} observations: {', '.join(refused)}"


def _of_client(run: Run, workload: Workload) -> Iterator[str]:
    if run.client.lag_p99_ms > LAG_P99_MS_WARN:
        yield f"the load generator was up to {run.client.lag_p99_ms:.0f} ms late (p99 of its event loop's lag)"
    if workload.request_rate is not None and workload.max_concurrency is not None:
        waited = sum(sample.sent_s - sample.scheduled_s > run.client.send_lag_max_ms / 1e3 for sample in run.samples)
        if waited:
            yield f"max_concurrency held back {waited} of {len(run.samples)} requests: the open loop was not open"
