"""A run → its metrics. A number that was not observed, or not often enough, is not in the map."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from dsabench.errors import TrialFault
from dsabench.load.generate import Run
from dsabench.load.health import LAG_P99_MS_WARN
from dsabench.load.latencies import latencies_ms
from dsabench.model.outcome import Measured, Metric
from dsabench.model.sample import RequestSample, Times
from dsabench.model.workload import Workload
from dsabench.stats.percentiles import needed, percentile

QUANTILES = {"p50": 0.50, "p90": 0.90, "p95": 0.95, "p99": 0.99}
CACHED_SHARE_WARN = 0.01
"""Share of the prompt tokens that a prefix cache may answer before it is said beside the numbers."""


def summarise(run: Run, workload: Workload) -> Measured:
    """Metrics and warnings; where the samples lie is set by who stores them.

    Raises:
        TrialFault: the client was saturated, so the numbers would describe it and not the server.

    """
    if run.client.saturated is not None:
        raise TrialFault("client_saturated", f"client saturated: {run.client.saturated}", stage="summarise")
    completed = [sample for sample in run.samples if sample.error is None]
    latencies = latencies_ms(completed)
    metrics = _totals(run, completed) | _server_side(completed) | _client(run)
    for name, values in latencies.items():
        metrics |= _distribution(name, values)
    warnings = (*_request_warnings(run.samples, completed), *_refusals(latencies), *_client_warnings(run, workload))
    return Measured(metrics=metrics, warnings=warnings)


def _totals(run: Run, completed: Sequence[RequestSample]) -> dict[str, Metric]:
    n, duration_s = len(completed), run.duration_s
    input_tokens = sum(sample.input_len if sample.input_tokens is None else sample.input_tokens for sample in completed)
    output_tokens = sum(sample.output_tokens for sample in completed)
    in_flight_s = sum(sample.done_s - sample.sent_s for sample in completed)
    values = {
        "duration_s": duration_s,
        "completed": n,
        "input_tokens": input_tokens,
        "output_tokens": output_tokens,
        "request_throughput_req_s": n / duration_s,
        "input_throughput_tok_s": input_tokens / duration_s,
        "output_throughput_tok_s": output_tokens / duration_s,
        "total_throughput_tok_s": (input_tokens + output_tokens) / duration_s,
        "concurrency.mean": in_flight_s / duration_s,
    }
    failed = {"failed": Metric(value=len(run.samples) - n, n=len(run.samples))}
    return {name: Metric(value=value, n=n) for name, value in values.items()} | failed


def _distribution(name: str, values: Times) -> dict[str, Metric]:
    n = len(values)
    if n == 0:
        return {}
    figures = {"mean": float(values.mean()), "min": float(values.min()), "max": float(values.max())}
    figures |= {label: p for label, q in QUANTILES.items() if (p := percentile(values, q)) is not None}
    return {f"{name}.{label}": Metric(value=value, n=n) for label, value in figures.items()}


def _server_side(completed: Sequence[RequestSample]) -> dict[str, Metric]:
    """What only the server knows; absent where it does not tell."""
    metrics = {}
    cached = [sample.cached_tokens for sample in completed if sample.cached_tokens is not None]
    if cached:
        metrics["cached_tokens"] = Metric(value=sum(cached), n=len(cached))
    accepted = [sample.accept_length for sample in completed if sample.accept_length is not None]
    if accepted:
        metrics["accept_length.mean"] = Metric(value=sum(accepted) / len(accepted), n=len(accepted))
    return metrics


def _client(run: Run) -> dict[str, Metric]:
    client, n = run.client, len(run.samples)
    values = {
        "client.cpu_s": client.cpu_s,
        "client.lag_ms.max": client.lag_max_ms,
        "client.send_lag_ms.max": client.send_lag_max_ms,
    }
    return {name: Metric(value=value, n=n) for name, value in values.items()}


def _request_warnings(samples: Sequence[RequestSample], completed: Sequence[RequestSample]) -> Iterator[str]:
    errors = Counter(sample.error for sample in samples if sample.error is not None)
    if errors:
        [(commonest, _)] = errors.most_common(1)
        yield f"{errors.total()} of {len(samples)} requests failed, most with {commonest}"
    short = sum(sample.output_tokens < sample.output_len_asked for sample in completed)
    if short:
        yield f"{short} of {len(completed)} answers have fewer tokens than were asked for"
    other = sum(sample.input_tokens not in {None, sample.input_len} for sample in completed)
    if other:
        yield f"the server counts other prompt lengths than were sent in {other} of {len(completed)} requests"
    cached = sum(sample.cached_tokens or 0 for sample in completed)
    share = cached / (sum(sample.input_len for sample in completed) or 1)
    if share > CACHED_SHARE_WARN:
        yield f"the prefix cache answered {share:.0%} of the prompt tokens: prefill is faster than the workload asks"


def _refusals(latencies: dict[str, Times]) -> Iterator[str]:
    """One line per quantile that some latency has too few observations for."""
    for label, q in QUANTILES.items():
        refused = [f"{name} ({len(values)})" for name, values in latencies.items() if 0 < len(values) < needed(q)]
        if refused:
            yield f"no {label} from fewer than {needed(q)} observations: {', '.join(refused)}"


def _client_warnings(run: Run, workload: Workload) -> Iterator[str]:
    if run.client.lag_p99_ms > LAG_P99_MS_WARN:
        yield f"the load generator was up to {run.client.lag_p99_ms:.0f} ms late (p99 of its event loop's lag)"
    if workload.request_rate is not None and workload.max_concurrency is not None:
        waited = sum(sample.sent_s - sample.scheduled_s > run.client.send_lag_max_ms / 1e3 for sample in run.samples)
        if waited:
            yield f"max_concurrency held back {waited} of {len(run.samples)} requests: the open loop was not open"
