"""The metrics of a load test: name, unit, better direction, meaning. `metrics.yaml` as values.

Names carry their unit; a statistic follows after a dot. A measurement holds a subset: what could not be measured, or
has too few requests behind it for its percentile, is not there.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from dsabench.model.tables import read_table

Direction = Literal["maximize", "minimize"]


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


_TABLE = read_table("metrics.yaml")
STATISTICS: dict[str, str] = _TABLE["statistics"]


def _metrics() -> Iterator[MetricInfo]:
    """Of the whole run, of the machine, and of the steady state."""
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
"""Those that an objective may use."""
