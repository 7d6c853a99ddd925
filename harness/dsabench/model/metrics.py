"""The metrics of a load test, read from `metrics.yaml`: name, unit, better direction, meaning.

Names contain their unit; a statistic follows after a dot. A measurement has a subset of them: a metric is missing
if it could not be measured, or if there are too few requests for its percentile.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from dsabench.errors import InputError, nearest
from dsabench.model.tables import read_table

Direction = Literal["maximize", "minimize"]


@dataclass(frozen=True, slots=True)
class MetricInfo:
    """The meaning of one metric."""

    name: str
    unit: str
    direction: Direction | None
    """None if neither direction is better. Such a metric describes conditions and cannot be an objective."""
    meaning: str

    @property
    def better(self) -> Literal["higher", "lower"]:
        """The direction in words. Only for a metric with a direction."""
        assert self.direction is not None, "the config refuses such an objective"
        return "higher" if self.direction == "maximize" else "lower"


_TABLE = read_table("metrics.yaml")
STATISTICS: dict[str, str] = _TABLE["statistics"]


def _metrics() -> Iterator[MetricInfo]:
    """Metrics of the whole run, of the machine, and of the steady state."""
    run = [MetricInfo(name, **row) for name, row in _TABLE["run"].items()]
    per_request = [
        MetricInfo(f"{name}.{statistic}", row["unit"], row["direction"], f"{row['meaning']}: {words}")
        for name, row in _TABLE["families"].items()
        for statistic, words in STATISTICS.items()
    ]
    yield from (*run, *per_request)
    yield from (MetricInfo(name, **row) for name, row in _TABLE["machine"].items())
    steady = _TABLE["steady"]
    for metric in (*run, *per_request):
        if metric.name in steady["run"] or metric.name.partition(".")[0] in steady["families"]:
            yield MetricInfo(
                f"steady.{metric.name}", metric.unit, metric.direction, f"{metric.meaning}, in steady state"
            )


METRICS: dict[str, MetricInfo] = {metric.name: metric for metric in _metrics()}
"""Every name that a constraint or a comparison may use."""

OBJECTIVES: tuple[str, ...] = tuple(sorted(name for name, metric in METRICS.items() if metric.direction is not None))
"""The names that an objective may use."""


def require_metrics(names: Iterable[str]) -> None:
    """Refuse unknown metric names.

    Raises:
        InputError: there is no such metric; with the nearest name.

    """
    for name in names:
        if name not in METRICS:
            near = nearest(name, METRICS)
            raise InputError(
                f"{name}: no such metric" + (f"; did you mean {near}?" if near else " (docs/metrics.md lists them)")
            )
