"""What the engines did, as `/metrics` and `/server_info` show it under sglang's names."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from prometheus_client import CollectorRegistry, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from dsabench import __version__
from dsabench.reference.engine.counters import EngineCounters
from dsabench.reference.server.rank_messages import EngineReady, EngineStatus

_FIRST_TOKEN_S = (0.001, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
_BETWEEN_TOKENS_S = (0.001, 0.002, 0.004, 0.006, 0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 1.0, 4.0)


class ServerMetrics:
    """Own registry: histograms are fed as tokens come, the rest is read from the engines when somebody asks."""

    def __init__(self, model_name: str) -> None:
        self._registry = CollectorRegistry()
        self._engines = _EngineCollector(model_name)
        self._registry.register(self._engines)

        def histogram(name: str, text: str, buckets: tuple[float, ...]) -> Histogram:
            made = Histogram(f"sglang:{name}", text, ["model_name"], registry=self._registry, buckets=buckets)
            return made.labels(model_name=model_name)

        self.first_token_s = histogram(
            "time_to_first_token_seconds", "From arrival to the first token.", _FIRST_TOKEN_S
        )
        self.between_tokens_s = histogram("inter_token_latency_seconds", "Between tokens.", _BETWEEN_TOKENS_S)
        self.whole_request_s = histogram("e2e_request_latency_seconds", "From arrival to the end.", _FIRST_TOKEN_S)

    def render(self, started: EngineReady | None, statuses: Sequence[EngineStatus]) -> bytes:
        """Text exposition format."""
        self._engines.started, self._engines.statuses = started, statuses
        return generate_latest(self._registry)


class _EngineCollector(Collector):
    """All groups together, as they were when somebody asked."""

    def __init__(self, model_name: str) -> None:
        self._labels = {"model_name": model_name}
        self.started: EngineReady | None = None
        self.statuses: Sequence[EngineStatus] = ()

    def collect(self) -> Iterator[GaugeMetricFamily | CounterMetricFamily]:
        if self.started is None:
            return
        counters = total(self.statuses)
        pool = self.started.pool_tokens * len(self.statuses)
        used = sum(status.used_tokens for status in self.statuses)
        hit_rate = counters.cached_tokens / counters.prompt_tokens if counters.prompt_tokens else 0.0
        gauges: dict[str, tuple[str, float]] = {
            "num_running_reqs": ("Requests in the running batch.", sum(one.running for one in self.statuses)),
            "num_queue_reqs": ("Requests that wait.", sum(one.queued for one in self.statuses)),
            "num_used_tokens": ("Tokens of KV held by running requests.", used),
            "max_total_num_tokens": ("Tokens in the KV pool.", pool),
            "token_usage": ("Share of the KV pool held by running requests.", used / pool),
            "gen_throughput": (
                "Generated tokens per second of decoding.",
                sum(one.decode_tokens_per_s for one in self.statuses),
            ),
            "cache_hit_rate": ("Share of prompt tokens found in the prefix cache.", hit_rate),
        }
        totals: dict[str, tuple[str, float]] = {
            "prompt_tokens": ("Prompt tokens, cached ones included.", counters.prompt_tokens),
            "cached_tokens": ("Prompt tokens found in the prefix cache.", counters.cached_tokens),
            "generation_tokens": ("Generated tokens.", counters.generated_tokens),
            "num_requests": ("Requests received.", counters.requests),
            "num_aborted_requests": ("Requests aborted.", counters.aborted_requests),
        }
        if counters.accept_length is not None:
            gauges["spec_accept_length"] = ("Tokens per verification.", counters.accept_length)
        for name, (text, value) in gauges.items():
            gauge = GaugeMetricFamily(f"sglang:{name}", text, labels=list(self._labels))
            gauge.add_metric(list(self._labels.values()), value)
            yield gauge
        for name, (text, value) in totals.items():
            counter = CounterMetricFamily(f"sglang:{name}", text, labels=list(self._labels))
            counter.add_metric(list(self._labels.values()), value)
            yield counter


def total(statuses: Sequence[EngineStatus]) -> EngineCounters:
    """Counts of all groups."""
    return sum((status.counters for status in statuses), EngineCounters())


def server_info(started: EngineReady, statuses: Sequence[EngineStatus]) -> dict[str, object]:
    """Resolved settings, an internal state per group, and counters of what ran."""
    states = []
    for status in statuses:
        state: dict[str, object] = {
            "last_gen_throughput": status.decode_tokens_per_s,
            "memory_usage": {"kvcache": started.kv_bytes / 1e9, "token_capacity": started.pool_tokens},
            "effective_max_running_requests_per_dp": started.max_running_requests,
            "pp_max_micro_batch_size": status.limit,
        }
        if status.counters.accept_length is not None:
            state["avg_spec_accept_length"] = status.counters.accept_length
        states.append(state)
    reference = {**started.reference, "counters": total(statuses).snapshot()}
    if len(statuses) > 1:
        reference["counters_of_groups"] = [status.counters.snapshot() for status in statuses]
    ranks = [rank for status in statuses for rank in status.expert_tokens_of_ranks]
    if any(ranks):
        reference["expert_tokens_of_ranks"] = [{str(expert): one[expert] for expert in sorted(one)} for one in ranks]
    return {**started.settings, "internal_states": states, "version": __version__, "reference": reference}
