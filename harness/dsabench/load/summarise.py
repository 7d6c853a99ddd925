"""A run → its metrics. A number that was not observed, or not often enough, is not in the map."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dsabench.errors import TrialFault
from dsabench.load.cautions import cautions
from dsabench.load.figures import accept_lengths, distribution, steady_figures
from dsabench.load.generate import Run
from dsabench.load.goodput import goodput
from dsabench.load.latencies import latencies_ms
from dsabench.load.machine import Done, machine_figures
from dsabench.load.server_view import ServerView
from dsabench.load.steady import Unsteady, steady_window
from dsabench.model.record import Measured, Metric
from dsabench.model.sample import RequestSample
from dsabench.model.workload import Workload


def summarise(run: Run, workload: Workload, server: ServerView | None = None) -> Measured:
    """Metrics and warnings; where the samples lie is set by who stores them.

    `server` is what it said of itself before and after the run, where it was asked.

    Raises:
        TrialFault: the client was saturated, so the numbers would describe it and not the server; or another server
            process answered at the end than at the start.

    """
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
    if not isinstance(window, Unsteady):
        metrics |= steady_figures(run.samples, window)
    metrics |= _machine(run, metrics)
    return Measured(metrics=metrics, warnings=tuple(cautions(run, workload, latencies, metrics, window)))


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


def _server_side(completed: Sequence[RequestSample], server: ServerView | None) -> dict[str, Metric]:
    """What only the server knows; absent where it does not tell."""
    metrics = accept_lengths(completed)
    cached = [sample.cached_tokens for sample in completed if sample.cached_tokens is not None]
    if cached:
        metrics["cached_tokens"] = Metric(value=sum(cached), n=len(cached))
    if not metrics.keys() & {"accept_length.mean"} and server is not None:
        lifetime = server.lifetime_accept_length
        metrics |= {} if lifetime is None else {"accept_length.lifetime": lifetime}
    return metrics


def _machine(run: Run, totals: Mapping[str, Metric]) -> dict[str, Metric]:
    """What it did meanwhile; empty where nobody observed it."""
    if run.machine is None:
        return {}
    done = Done(*(int(totals[name].value) for name in ("completed", "input_tokens", "output_tokens")))
    return {name: Metric(value=one.value, n=one.n) for name, one in machine_figures(run.machine, done).items()}


def _client(run: Run) -> dict[str, Metric]:
    client, n = run.client, len(run.samples)
    values = {
        "client.cpu_s": client.cpu_s,
        "client.lag_ms.max": client.lag_max_ms,
        "client.send_lag_ms.max": client.send_lag_max_ms,
        "client.gc_pauses": client.gc_pauses,
        "client.gc_ms.max": client.gc_max_ms,
    }
    return {name: Metric(value=value, n=n) for name, value in values.items()}
