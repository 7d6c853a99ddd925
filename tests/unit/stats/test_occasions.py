from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from scipy import stats

from dsabench.stats.compare import ComparisonSpec, LogRatioEstimate, verdict_at
from dsabench.stats.occasions import (
    OCCASION_PAUSE_S,
    ApartOptions,
    TimedBoot,
    compare_apart,
    occasions_of,
    spread_between_occasions,
)

DAY_S = 86_400.0
QUESTION = ComparisonSpec("m", "w", "maximize", paired=False, equivalence=0.01)


def night(number: int, *values: float, side: str = "base") -> list[TimedBoot]:
    starts_s = [number * DAY_S + 60 * place for place in range(len(values))]
    return [TimedBoot(f"{side} {s}", v, s, s + 30) for s, v in zip(starts_s, values, strict=True)]


def test_a_pause_begins_an_occasion() -> None:
    later = TimedBoot("later", 1.0, 130 + OCCASION_PAUSE_S, 131 + OCCASION_PAUSE_S)
    boots = [TimedBoot("b", 1.0, 60, 120), TimedBoot("a", 1.0, 0, 30), later]
    assert [[boot.boot for boot in occasion] for occasion in occasions_of(boots)] == [["a", "b"], ["later"]]


def test_the_spread_is_that_of_neighbouring_occasions_far_enough_apart() -> None:
    levels = [math.exp(level) for level in (0.0, 0.02, -0.01, 0.03)]
    history = occasions_of([boot for number, level in enumerate(levels) for boot in night(number, level, level)])
    daily = spread_between_occasions([history], DAY_S, 2)
    assert daily is not None
    assert daily.spread == pytest.approx(math.sqrt((0.02**2 + 0.03**2 + 0.04**2) / 3))
    assert (daily.differences, daily.df) == (3, pytest.approx(18 / 8))
    rarer = spread_between_occasions([history], 1.5 * DAY_S, 2)
    assert rarer is not None
    assert (rarer.differences, rarer.df, rarer.spread) == (1, 1.0, pytest.approx(0.01))
    assert spread_between_occasions([history], 4 * DAY_S, 2) is None


Levels = Callable[[np.random.Generator, int], "np.ndarray[tuple[int], np.dtype[np.float64]]"]


def _independent(rng: np.random.Generator, count: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return rng.normal(0.0, 0.05, count)


def _walk(rng: np.random.Generator, count: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return np.cumsum(rng.normal(0.0, 0.05, count))


@pytest.mark.parametrize("drift", [_independent, _walk])
@pytest.mark.parametrize("nights", [2, 3, 8])
def test_one_unchanged_setting_keeps_the_level(drift: Levels, nights: int) -> None:
    """Whether occasions are independent or the machine walks away."""
    rng, families, alarms = np.random.default_rng(nights), 1500, 0
    for _ in range(families):
        levels = np.exp(drift(rng, nights + 1))
        sides = [night(n, *(level * rng.lognormal(0.0, 0.02, 3))) for n, level in enumerate(levels)]
        base = [boot for of_night in sides[:-1] for boot in of_night]
        answer = compare_apart(QUESTION, base, sides[-1], ApartOptions(widen=True)).answer
        assert isinstance(answer, LogRatioEstimate)
        alarms += answer.p <= 0.05
    assert alarms <= stats.binom.ppf(0.999, families, 0.05)


def test_a_stated_spread_widens_the_interval_of_the_boots() -> None:
    sides = night(0, 100, 101, 99), night(0, 90, 91, 89, side="candidate")
    stated = verdict_at(compare_apart(QUESTION, *sides, ApartOptions(widen=True, stated=0.05)))
    assert (stated.n_base, stated.n_candidate, stated.verdict) == (3, 3, "worse")
    assert stated.ci_high is not None
    assert math.log1p(stated.ci_high) == pytest.approx(math.log(0.9) + 1.96 * math.hypot(0.05, 0.0087), abs=0.002)
    wide = verdict_at(compare_apart(QUESTION, *sides, ApartOptions(widen=True, stated=0.2)))
    assert (wide.verdict, wide.boots_needed) == ("inconclusive", None)
    assert "boots in turns decide it" in wide.reason


def test_without_history_or_leave_there_is_no_verdict() -> None:
    sides = night(0, 100, 101, 99), night(3, 50, 51, 49, side="candidate")
    for options, why in ((ApartOptions(), "drift may be"), (ApartOptions(widen=True), "no two occasions of one")):
        found = verdict_at(compare_apart(QUESTION, *sides, options))
        assert (found.verdict, found.effect) == ("inconclusive", pytest.approx(-0.5, abs=0.01))
        assert "(3 days apart)" in found.reason
        assert why in found.reason
