from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from dsabench.stats.bootstrap import bootstrap
from dsabench.stats.repeats import BOOTSTRAP_FROM, over_boots


def test_a_boot_counts_once_however_often_it_measured() -> None:
    found = over_boots({"a": [1.0, 3.0], "b": [4.0]})
    assert found is not None
    assert (found.boots, found.mean) == (2, 3.0)


def test_few_boots_have_students_interval() -> None:
    values = [10.0, 11.0, 12.5]
    found = over_boots({str(i): [value] for i, value in enumerate(values)})
    assert found is not None
    assert found.interval == pytest.approx(stats.t.interval(0.95, 2, loc=np.mean(values), scale=stats.sem(values)))


def test_many_boots_have_the_bootstraps() -> None:
    values = np.random.default_rng(1).normal(100, 5, BOOTSTRAP_FROM).tolist()
    found = over_boots({str(i): [value] for i, value in enumerate(values)})
    assert found is not None
    assert found.interval == bootstrap(values, lambda drawn: float(drawn.mean()), seed=0)


def test_one_boot_has_no_interval_and_none_has_no_mean() -> None:
    single = over_boots({"a": [1.0, 2.0]})
    assert single is not None
    assert (single.boots, single.mean, single.interval) == (1, 1.5, None)
    assert over_boots({}) is None
