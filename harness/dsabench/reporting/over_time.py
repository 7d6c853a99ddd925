"""Samples as series over time, for pictures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dsabench.load.judge.metrics import gaps_s
from dsabench.model.sample import RequestSample, Times
from dsabench.stats.percentiles import percentile

_BINS = 80
"""At 800 pixels a bin is then as wide as a mark."""
_STEPS_S = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)


@dataclass(frozen=True, slots=True)
class Bins:
    """Equal pieces of the run; `edges_s` has one entry more than there are bins."""

    edges_s: Times
    width_s: float

    @classmethod
    def over(cls, samples: Sequence[RequestSample]) -> Bins:
        """Pieces of a round length, about eighty of them, from 0 to the last byte."""
        end_s = max(sample.done_s for sample in samples)
        width_s = next((step_s for step_s in _STEPS_S if step_s * _BINS >= end_s), end_s / _BINS)
        count = max(int(np.ceil(end_s / width_s)), 1)
        return cls(np.arange(count + 1, dtype=np.float64) * width_s, width_s)

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self.edges_s) - 1

    @property
    def middles_s(self) -> Times:
        """[bins] centre of each."""
        return (self.edges_s[:-1] + self.edges_s[1:]) / 2

    def of(self, at_s: Times) -> npt.NDArray[np.int64]:
        """The bin of each moment; what lies outside goes to the nearest."""
        return np.clip((at_s / self.width_s).astype(np.int64), 0, self.count - 1)


def gaps_over_time(samples: Sequence[RequestSample]) -> tuple[Times, Times]:
    """(when each gap between tokens ended, how long it was in ms)."""
    ends_s = np.concatenate([np.repeat(sample.frames.at_s[1:], sample.frames.tokens[1:]) for sample in samples])
    return ends_s, np.concatenate([gaps_s(sample.frames) for sample in samples]) * 1e3


def quantiles_over_time(at_s: Times, values: Times, bins: Bins, quantiles: Sequence[float]) -> Times:
    """[quantiles, bins] of the values in each bin; NaN where a bin has too few for the quantile."""
    place = bins.of(at_s)
    order = np.argsort(place, kind="stable")
    parts = np.split(values[order], np.cumsum(np.bincount(place, minlength=bins.count))[:-1])
    found = [[percentile(part, q) for part in parts] for q in quantiles]
    return np.array([[np.nan if value is None else value for value in row] for row in found], np.float64)


def largest_over_time(at_s: Times, values: Times, bins: Bins) -> Times:
    """[bins] the largest value in each; NaN where there is none."""
    largest = np.full(bins.count, -np.inf)
    np.maximum.at(largest, bins.of(at_s), values)
    return np.where(np.isfinite(largest), largest, np.nan)


def token_rates(samples: Sequence[RequestSample], bins: Bins) -> Times:
    """[bins] tokens per second."""
    at_s = np.concatenate([sample.frames.at_s for sample in samples])
    tokens = np.concatenate([sample.frames.tokens for sample in samples])
    return np.bincount(bins.of(at_s), weights=tokens, minlength=bins.count) / bins.width_s


def in_flight_over_time(samples: Sequence[RequestSample], bins: Bins) -> Times:
    """[bins] requests in flight, averaged over each bin: seconds spent in flight until an edge, less until the last."""
    spent_s = sum(np.maximum(np.minimum(sample.done_s, bins.edges_s) - sample.sent_s, 0.0) for sample in samples)
    return np.asarray(np.diff(spent_s) / bins.width_s, np.float64)
