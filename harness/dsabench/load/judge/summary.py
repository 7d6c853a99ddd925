"""A run to its metrics and warnings. A number that was not observed, or not often enough, is not among them.

Imports no pydantic before `summarise` is called.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from dsabench.errors import TrialFault
from dsabench.load.judge.machine_use import CompletedWork, machine_metrics, observed_warnings
from dsabench.load.judge.metrics import QUANTILES, MetricValue, accept_lengths, distribution, goodput, latencies_ms
from dsabench.load.judge.stalls import stall_warnings
from dsabench.load.judge.steady_state import NoSteadyState, SteadyWindow, steady_metrics, steady_window
from dsabench.load.judge.validity import ServerInfoPair, client_warnings, failures_of
from dsabench.model.dataset import DATASETS, DatasetName
from dsabench.model.sample import RequestSample, Times
from dsabench.stats.percentiles import observations_needed

if TYPE_CHECKING:
    from dsabench.load.load_test import LoadRun
    from dsabench.model.record import Measured
    from dsabench.model.workload import Workload


def summarise(run: LoadRun, workload: Workload, server: ServerInfoPair | None = None) -> Measured:
    """Metrics and warnings; where the samples lie is set by who stores them.

    `server` is what it said of itself before and after the run, where it was asked.

    Raises:
        TrialFault: the client was saturated, so the numbers would describe it and not the server; or another server
            process answered at the end than at the start.

    """
    from dsabench.model.record import Measured, Metric  # noqa: PLC0415

    if run.client.saturated is not None:
        raise TrialFault("client_saturated", f"client saturated: {run.client.saturated}", stage="summarise")
    if server is not None and (sign := server.restarted) is not None:
        raise TrialFault(
            "server_restarted", f"the server restarted during the run: {sign}", stage="load", transient=True
        )
    completed = [sample for sample in run.samples if sample.error is None]
    latencies = latencies_ms(completed)
    window = steady_window(run.samples, workload)
    metrics = _totals(run, completed) | _server_side(completed, server) | _client(run)
    for name, values in latencies.items():
        metrics |= distribution(name, values)
    if workload.slo is not None:
        metrics |= goodput(run.samples, workload.slo, run.duration_s)
    if not isinstance(window, NoSteadyState):
        metrics |= steady_metrics(run.samples, window)
    metrics |= _machine(run, metrics)
    recorded = {name: Metric(**metric._asdict()) for name, metric in metrics.items()}
    return Measured(metrics=recorded, warnings=tuple(warnings_of(run, workload, latencies, metrics, window)))


def _totals(run: LoadRun, completed: Sequence[RequestSample]) -> dict[str, MetricValue]:
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
    failed = {"failed": MetricValue(value=len(run.samples) - n, n=len(run.samples))}
    return {name: MetricValue(value=value, n=n) for name, value in values.items()} | failed


def _server_side(completed: Sequence[RequestSample], server: ServerInfoPair | None) -> dict[str, MetricValue]:
    """What only the server knows; absent where it does not tell."""
    metrics = accept_lengths(completed)
    cached = [sample.cached_tokens for sample in completed if sample.cached_tokens is not None]
    if cached:
        metrics["cached_tokens"] = MetricValue(value=sum(cached), n=len(cached))
    if not metrics.keys() & {"accept_length.mean"} and server is not None:
        lifetime = server.lifetime_accept_length
        metrics |= {} if lifetime is None else {"accept_length.lifetime": lifetime}
    return metrics if server is None else metrics | server.hot_buffer


def _machine(run: LoadRun, totals: Mapping[str, MetricValue]) -> dict[str, MetricValue]:
    """What it did meanwhile; empty where nobody observed it."""
    if run.machine is None:
        return {}
    done = CompletedWork(*(int(totals[name].value) for name in ("completed", "input_tokens", "output_tokens")))
    return machine_metrics(run.machine, done)


def _client(run: LoadRun) -> dict[str, MetricValue]:
    client, n = run.client, len(run.samples)
    values = {
        "client.cpu_s": client.cpu_s,
        "client.lag_ms.max": client.lag_max_ms,
        "client.send_lag_ms.max": client.send_lag_max_ms,
        "client.gc_pauses": client.gc_pauses,
        "client.gc_ms.max": client.gc_max_ms,
        "client.late_ms": client.late_ms,
        "client.core_wait_share": client.core_wait_share,
    }
    return {name: MetricValue(value=value, n=n) for name, value in values.items() if value is not None}


def warnings_of(
    run: LoadRun,
    workload: Workload,
    latencies: Mapping[str, Times],
    metrics: Mapping[str, MetricValue],
    steady: SteadyWindow | NoSteadyState,
) -> Iterator[str]:
    """All lines, what spoils most first."""
    yield from run.notes
    yield from stall_warnings(run.samples, run.client.lag_max_ms)
    yield from request_warnings(run.samples, workload.dataset, in_sessions=workload.sessions is not None)
    if workload.slo is not None and "slo_attainment" not in metrics:
        yield "no goodput: a latency that the SLO limits was not observed of some answers"
    yield from _of_accept_length(metrics)
    yield from _refusals(latencies)
    if isinstance(steady, NoSteadyState):
        yield f"no steady state: {steady.reason}"
    yield from _of_client(run, workload)
    yield from observed_warnings(run.machine, run.unobserved)


def _of_accept_length(metrics: Mapping[str, MetricValue]) -> Iterator[str]:
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


def _of_client(run: LoadRun, workload: Workload) -> Iterator[str]:
    yield from client_warnings(run.client)
    if workload.request_rate is not None and workload.max_concurrency is not None:
        waited = sum(sample.sent_s - sample.scheduled_s > run.client.send_lag_max_ms / 1e3 for sample in run.samples)
        if waited:
            yield f"max_concurrency held back {waited} of {len(run.samples)} requests: the open loop was not open"


CACHED_SHARE_WARN = 0.01
"""Share of the prompt tokens that a prefix cache may answer before it is said beside the numbers."""


def request_warnings(
    samples: Sequence[RequestSample], dataset: DatasetName, *, counts_sent: bool = False, in_sessions: bool = False
) -> Iterator[str]:
    """One line each: failures, short answers, other prompt lengths, how tokens were counted, a cached prefix.

    `counts_sent`: the input throughput counts the prompts' tokens as they were drawn, not as the server counts them.

    The turns of a session begin with those before them, whatever their dataset.
    """
    completed = [sample for sample in samples if sample.error is None]
    yield from _of_requests(samples, completed)
    yield from _of_prompt_lengths(completed, counts_sent=counts_sent)
    yield from _of_counting(completed)
    if not in_sessions and not DATASETS[dataset].shares_prefixes:
        yield from _of_cache(completed)


def _of_requests(samples: Sequence[RequestSample], completed: Sequence[RequestSample]) -> Iterator[str]:
    if (failures := failures_of(samples)) is not None:
        yield failures.told()
    short = sum(sample.output_tokens < sample.output_len_asked for sample in completed)
    if short:
        yield f"{short} of {len(completed)} answers have fewer tokens than were asked for"


def _of_prompt_lengths(completed: Sequence[RequestSample], *, counts_sent: bool) -> Iterator[str]:
    told = [(sample.input_len, sample.input_tokens) for sample in completed if sample.input_tokens is not None]
    other = sum(drawn != counted for drawn, counted in told)
    if other:
        drawn, counted = (sum(column) for column in zip(*told, strict=True))
        times = f" ({counted / drawn:.3g} times)" if drawn and not 0.995 < counted / drawn < 1.005 else ""
        yield (
            f"the server counts other prompt lengths than were sent in {other} of {len(completed)} requests: {counted:,} "
            f"tokens for {drawn:,}{times}; the input throughput counts {'what was sent' if counts_sent else 'what the server says'}"
        )


def _of_counting(completed: Sequence[RequestSample]) -> Iterator[str]:
    whole = sum(sample.output_tokens > 1 and len(sample.frames) == 1 for sample in completed)
    if whole:
        yield (
            f"{whole} of {len(completed)} answers came in one event: their TTFT is the time of the whole answer, and their "
            "TPOT and ITL were not observed"
        )
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


def _of_cache(completed: Sequence[RequestSample]) -> Iterator[str]:
    hit = sum(bool(sample.cached_tokens) for sample in completed)
    cached = sum(sample.cached_tokens or 0 for sample in completed)
    share = cached / (sum(sample.input_len for sample in completed) or 1)
    if share > CACHED_SHARE_WARN:
        yield f"the prefix cache answered {share:.0%} of the prompt tokens: prefill is faster than the workload asks"
        yield (
            f"{hit} of {len(completed)} requests found a cached prefix, which this dataset does not share: flush the "
            "cache before the run (dsabench bench: --flush-cache), or start the server with the prefix cache off"
        )
