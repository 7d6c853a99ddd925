from __future__ import annotations

import numpy as np
import pytest

from dsabench.stats.percentiles import observations_needed, percentile


@pytest.mark.parametrize(("q", "count"), [(0.5, 10), (0.9, 10), (0.95, 90), (0.99, 459), (0.999, 4603)])
def test_needed_follows_loadgen_in_the_tail(q: float, count: int) -> None:
    assert observations_needed(q) == count


@pytest.mark.parametrize("q", [0.5, 0.9, 0.95, 0.99])
def test_refuses_one_too_few_and_is_numpys_otherwise(q: float) -> None:
    values = np.random.default_rng(1).lognormal(size=observations_needed(q)).tolist()
    assert percentile(values[1:], q) is None
    assert percentile(values, q) == pytest.approx(np.percentile(values, 100 * q))


@pytest.mark.parametrize("q", [0.0, 1.0, 99.0])
def test_a_quantile_lies_between_zero_and_one(q: float) -> None:
    with pytest.raises(ValueError, match="between 0 and 1"):
        percentile([1.0] * 1000, q)
