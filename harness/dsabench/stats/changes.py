"""Find level changes in a series: candidates from PELT, confirmed by a test.

ruptures finds the places (Killick et al. 2012). It knows no significance, so each place is tested against its
neighbours with Welch's t test. Holm's correction counts the places found and all other places where it could have
found them, because it chose by looking at the data. A change below the equivalence margin does not count.
apache-otava does both, but needs Google's BigQuery client, gRPC and slack_sdk for three functions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dsabench.model.metrics import Direction
from dsabench.stats.compare import (
    ALPHA,
    BootValue,
    ComparisonSpec,
    LogRatioEstimate,
    compare_boots,
    holm,
    relative,
)

SERIES_MIN = 6
SEGMENT_MIN = 3
"""Boots of a level at least. The spread of fewer boots is unknown."""


@dataclass(frozen=True, slots=True)
class LevelChange:
    """A new level that starts at `index`; `effect` is relative to the level before."""

    index: int
    effect: float
    p: float
    is_worse: bool


def find_changes(
    values: Sequence[float], direction: Direction, *, equivalence: float = 0.01
) -> tuple[LevelChange, ...]:
    """Confirmed changes in order of time. A series with fewer than six values, or with one that is not positive, has
    none.
    """
    data = np.asarray(values, dtype=np.float64)
    if data.size < SERIES_MIN or float(data.min()) <= 0.0:
        return ()
    logs = np.log(data)
    found: tuple[LevelChange, ...] = ()
    places = _places(logs)
    while places:
        tested = [_test(logs, places, i, direction) for i in range(len(places))]
        levels = holm([change.p for change in tested], ALPHA / logs.size)
        kept = [
            change
            for change, level in zip(tested, levels, strict=True)
            if change.p <= level and abs(change.effect) > equivalence
        ]
        found = tuple(kept)
        if len(kept) == len(places):
            break
        weakest = max(tested, key=lambda change: change.p if change not in kept else -1.0)
        places = [place for place in places if place != weakest.index]
    return found if places else ()


def _places(logs: npt.NDArray[np.float64]) -> list[int]:
    """PELT with squared error. The penalty is the BIC's, with the noise estimated from neighbouring values."""
    import ruptures  # noqa: PLC0415  (a tenth of a second that only a history pays)

    noise = float(np.median(np.abs(np.diff(logs)))) / (math.sqrt(2.0) * 0.6745)
    spread = max(noise, 1e-6)
    finder = ruptures.Pelt(model="l2", min_size=SEGMENT_MIN, jump=1).fit(logs.reshape(-1, 1))
    ends = finder.predict(pen=3.0 * math.log(logs.size) * spread**2)
    return [int(end) for end in ends[:-1]]


def _test(logs: npt.NDArray[np.float64], places: Sequence[int], i: int, direction: Direction) -> LevelChange:
    start = places[i - 1] if i else 0
    end = places[i + 1] if i + 1 < len(places) else logs.size
    before, after = logs[start : places[i]], logs[places[i] : end]
    sides = [
        [BootValue(str(n), math.exp(v)) for n, v in enumerate(side, first)]
        for side, first in ((before, start), (after, places[i]))
    ]
    question = ComparisonSpec("", "", direction, paired=False, equivalence=0.0)
    answer = compare_boots(question, sides[0], sides[1]).answer
    p, difference = (answer.p, answer.difference) if isinstance(answer, LogRatioEstimate) else (1.0, 0.0)
    return LevelChange(places[i], relative(difference), p, (difference < 0.0) == (direction == "maximize"))
