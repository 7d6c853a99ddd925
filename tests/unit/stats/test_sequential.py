from __future__ import annotations

import math

import numpy as np
import pytest

from dsabench.model.verdict import BOOTS_MIN
from dsabench.stats.compare import LogRatioEstimate
from dsabench.stats.sequential import is_hopeless, look_levels


@pytest.mark.parametrize("pairs", [1, 3, 4, 6, 20])
def test_the_looks_share_the_chance_and_the_last_has_most_of_it(pairs: int) -> None:
    levels = look_levels(pairs, 0.05)
    assert sum(levels.values()) == pytest.approx(0.05)
    assert list(levels) == [*range(BOOTS_MIN, pairs), pairs]
    assert list(levels.values()) == sorted(levels.values())
    assert levels[pairs] == pytest.approx(0.05 if pairs <= BOOTS_MIN else 0.04)


def so_far(values: np.ndarray[tuple[int], np.dtype[np.float64]]) -> LogRatioEstimate:
    spread = float(np.std(values, ddof=1))
    return LogRatioEstimate(float(np.mean(values)), spread / math.sqrt(len(values)), len(values) - 1.0, spread)


def test_what_is_given_up_would_hardly_have_been_decided() -> None:
    """Of unchanged settings some are given up, and of those few would have been called different with all boots."""
    rng, planned, given_up, would = np.random.default_rng(3), 6, 0, 0
    for _ in range(2000):
        values = rng.normal(0.0, 0.03, planned)
        if is_hopeless(so_far(values[:4]), 4, planned, alpha=0.04, equivalence=0.01):
            whole = so_far(values)
            given_up += 1
            would += whole.p <= 0.04
    assert given_up > 600
    assert would <= 0.05 * given_up


def test_a_clear_effect_a_full_count_and_boots_without_spread_are_not_given_up() -> None:
    clear = so_far(np.array([0.1, 0.11, 0.09]))
    assert not is_hopeless(clear, 3, 6, alpha=0.04, equivalence=0.01)
    null = so_far(np.array([0.03, -0.03, 0.001, -0.001]))
    assert is_hopeless(null, 4, 5, alpha=0.04, equivalence=0.01)
    assert not is_hopeless(null, 4, 4, alpha=0.04, equivalence=0.01)
    assert not is_hopeless(LogRatioEstimate(0.0, 0.0, 2.0, 0.0), 3, 6, alpha=0.04, equivalence=0.01)
    tight = so_far(np.array([0.001, -0.001, 0.0005]))  # on its way to "no difference"
    assert not is_hopeless(tight, 3, 6, alpha=0.04, equivalence=0.01)
