"""Prometheus metrics under sglang's names."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from dsabench.reference.engine import Engine

_FIRST_TOKEN_S = (0.001, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
_BETWEEN_TOKENS_S = (0.001, 0.002, 0.004, 0.006, 0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 1.0, 4.0)


class Metrics:
    """Own registry: histograms are fed as tokens come, the rest is read from the engine when somebody asks."""

    def __init__(self, model_name: str, engine: Callable[[], Engine | None]) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(_EngineCollector(model_name, engine))

        def histogram(name: str, text: str, buckets: tuple[float, ...]) -> Histogram:
            made = Histogram(f"sglang:{name}", text, ["model_name"], registry=self._registry, buckets=buckets)
            return made.labels(model_name=model_name)

        self.first_token_s = histogram(
            "time_to_first_token_seconds", "From arrival to the first token.", _FIRST_TOKEN_S
        )
        self.between_tokens_s = histogram("inter_token_latency_seconds", "Between tokens.", _BETWEEN_TOKENS_S)
        self.whole_request_s = histogram("e2e_request_latency_seconds", "From arrival to the end.", _FIRST_TOKEN_S)

    def render(self) -> bytes:
        """Text exposition format."""
        return generate_latest(self._registry)


class _EngineCollector(Collector):
    def __init__(self, model_name: str, engine: Callable[[], Engine | None]) -> None:
        self._labels, self._engine = {"model_name": model_name}, engine

    def collect(self) -> Iterator[GaugeMetricFamily | CounterMetricFamily]:
        engine = self._engine()
        if engine is None:
            return
        scheduler, counters = engine.scheduler, engine.counters
        pool = scheduler.pool
        hit_rate = counters.cached_tokens / counters.prompt_tokens if counters.prompt_tokens else 0.0
        gauges: dict[str, tuple[str, float]] = {
            "num_running_reqs": ("Requests in the running batch.", len(scheduler.running) + len(scheduler.prefilling)),
            "num_queue_reqs": ("Requests that wait.", len(scheduler.waiting)),
            "num_used_tokens": ("Tokens of KV held by running requests.", pool.used * pool.page_size),
            "max_total_num_tokens": ("Tokens in the KV pool.", engine.settings.pool_tokens),
            "token_usage": ("Share of the KV pool held by running requests.", pool.used / pool.total),
            "gen_throughput": ("Generated tokens per second of decoding.", engine.decode_tokens_per_s),
            "cache_hit_rate": ("Share of prompt tokens found in the prefix cache.", hit_rate),
        }
        totals: dict[str, tuple[str, float]] = {
            "prompt_tokens": ("Prompt tokens, cached ones included.", counters.prompt_tokens),
            "cached_tokens": ("Prompt tokens found in the prefix cache.", counters.cached_tokens),
            "generation_tokens": ("Generated tokens.", counters.generated_tokens),
            "num_requests": ("Requests received.", counters.requests),
            "num_aborted_requests": ("Requests aborted.", counters.aborted),
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
