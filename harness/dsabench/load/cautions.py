"""What a reader of a run's numbers must know beside them, one line each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from dsabench.load.figures import QUANTILES
from dsabench.load.generate import Run
from dsabench.load.health import LAG_P99_MS_WARN
from dsabench.load.steady import Unsteady, Window
from dsabench.model.outcome import Metric
from dsabench.model.sample import RequestSample, Times
from dsabench.model.workload import Workload
from dsabench.stats.percentiles import needed

CACHED_SHARE_WARN = 0.01
"""Share of the prompt tokens that a prefix cache may answer before it is said beside the numbers."""
SHARING_DATASETS = frozenset({"generated-shared-prefix", "mooncake", "openai", "custom"})
"""Datasets whose prompts share prefixes on purpose, or may."""


def cautions(
    run: Run,
    workload: Workload,
    latencies: Mapping[str, Times],
    metrics: Mapping[str, Metric],
    steady: Window | Unsteady,
) -> Iterator[str]:
    """All lines, what spoils most first."""
    completed = [sample for sample in run.samples if sample.error is None]
    yield from _of_requests(run.samples, completed)
    yield from _of_counting(completed)
    yield from _of_cache(completed, workload)
    yield from _of_accept_length(metrics)
    yield from _refusals(latencies)
    if isinstance(steady, Unsteady):
        yield f"no steady state: {steady.reason}"
    yield from _of_client(run, workload)


def _of_requests(samples: Sequence[RequestSample], completed: Sequence[RequestSample]) -> Iterator[str]:
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


def _of_counting(completed: Sequence[RequestSample]) -> Iterator[str]:
    deltas = sum(sample.count_source == "deltas" for sample in completed)
    if deltas:
        yield (
            f"the server sent no token counts for {deltas} of {len(completed)} answers: each event with text counts as "
            "one token, which is too few where a step brings several"
        )
    totals = sum(sample.count_source == "total" for sample in completed)
    if totals:
        yield (
            f"the server told the tokens of {totals} of {len(completed)} answers at their end only: they are spread "
            "over the events, and the gaps between tokens (ITL) inside an event are an estimate"
        )


def _of_cache(completed: Sequence[RequestSample], workload: Workload) -> Iterator[str]:
    hit = sum(bool(sample.cached_tokens) for sample in completed)
    cached = sum(sample.cached_tokens or 0 for sample in completed)
    share = cached / (sum(sample.input_len for sample in completed) or 1)
    if share > CACHED_SHARE_WARN and workload.dataset not in SHARING_DATASETS:
        yield f"the prefix cache answered {share:.0%} of the prompt tokens: prefill is faster than the workload asks"
        yield (
            f"{hit} of {len(completed)} requests found a cached prefix, which this dataset does not share: flush the "
            "cache before the run, or start the server with the prefix cache off"
        )


def _of_accept_length(metrics: Mapping[str, Metric]) -> Iterator[str]:
    if "accept_length.lifetime" in metrics:
        yield (
            "no request told its accept length: accept_length.lifetime is the server's average since it started, "
            "warm-up and earlier runs included"
        )


def _refusals(latencies: Mapping[str, Times]) -> Iterator[str]:
    """One line per quantile that some latency has too few observations for."""
    for label, q in QUANTILES.items():
        refused = [f"{name} ({len(values)})" for name, values in latencies.items() if 0 < len(values) < needed(q)]
        if refused:
            yield f"no {label} from fewer than {needed(q)} observations: {', '.join(refused)}"


def _of_client(run: Run, workload: Workload) -> Iterator[str]:
    if run.client.lag_p99_ms > LAG_P99_MS_WARN:
        yield f"the load generator was up to {run.client.lag_p99_ms:.0f} ms late (p99 of its event loop's lag)"
    if workload.request_rate is not None and workload.max_concurrency is not None:
        waited = sum(sample.sent_s - sample.scheduled_s > run.client.send_lag_max_ms / 1e3 for sample in run.samples)
        if waited:
            yield f"max_concurrency held back {waited} of {len(run.samples)} requests: the open loop was not open"
