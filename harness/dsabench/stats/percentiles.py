"""Percentiles, and the number of observations that each one needs.

A tail percentile of few observations is mostly luck. The rule is the early stopping criterion of MLPerf LoadGen
(mlcommons/inference, loadgen/early_stopping.cc; "MLPerf Inference Rules", appendix on early stopping) without
tolerance: if none of h observations lies above the bound, the claim "a share q lies below it" has confidence C as
soon as q^h ≤ 1 − C, so h_min = ⌈ln(1 − C) / ln q⌉ with C = 0.99. p95 needs 90 and p99 needs 459.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

CONFIDENCE = 0.99
TAIL = 0.95
"""Quantiles from this one on use LoadGen's rule."""
BODY_MIN = 10
"""Observations that quantiles below `TAIL` need: p90 then lies between the two largest."""


def observations_needed(q: float) -> int:
    """Number of observations that quantile `q` (0 < q < 1) needs."""
    if not 0.0 < q < 1.0:
        raise ValueError(f"a quantile lies between 0 and 1, not at {q}")
    if q < TAIL:
        return BODY_MIN
    return math.ceil(math.log(1.0 - CONFIDENCE) / math.log(q))


def percentile(values: Sequence[float] | npt.NDArray[np.float64], q: float) -> float | None:
    """Interpolate linearly between order statistics (numpy's default); None for fewer than `observations_needed(q)`
    values.
    """
    if len(values) < observations_needed(q):
        return None
    return float(np.quantile(np.asarray(values, dtype=np.float64), q))
