"""Whether a setting runs, as `gp` expects it from those that ran and those that failed."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import ndtr

from dsabench.model.study import SearchSpace
from dsabench.study.proposers import survival
from dsabench.study.proposers.gaussian_process import Floats, Scales, SettingKernel
from dsabench.study.proposers.legal_settings import LegalSettings
from dsabench.study.proposers.survival import log_survival

SPACE = SearchSpace.model_validate(
    {
        "axes": [
            {"name": "size", "values": [1, 2, 4, 8]},
            {"name": "experts", "values": ["off", "on"]},
            {"name": "cache", "values": ["p", "q"]},
            {"name": "kernel", "values": ["r", "s", "t"]},
        ]
    }
)
LEGAL = LegalSettings(SPACE, {})
KERNEL = SettingKernel.of_space(SPACE, LEGAL.codes)
LEVELS = KERNEL.levels(LEGAL.codes)


def places(**values: object) -> list[int]:
    """Of the settings that have these values."""
    return [
        place
        for place, setting in enumerate(LEGAL.listed or ())
        if all(setting[name] == value for name, value in values.items())
    ]


def survival_of(ran: list[int], failed: list[int]) -> Floats:
    ended = [*ran, *failed]
    outcome = np.array([False] * len(ran) + [True] * len(failed))
    found: Floats = np.exp(log_survival(KERNEL, LEVELS[ended], outcome, LEVELS))
    return found


def test_one_failure_condemns_no_value_however_many_others_run() -> None:
    """A regression on 0 and 1 lost faith in all of `experts: on` after one failure, the more the more others ran."""
    failed, without = places(experts="on", size=8, cache="q", kernel="t"), places(experts="off")
    like_those_that_ran = places(experts="on", cache="p")
    few, many = survival_of(without[:4], failed), survival_of(without, failed)
    assert few[like_those_that_ran].mean() > 0.5
    assert many[like_those_that_ran].mean() > 0.5
    assert many[failed].max() < many[like_those_that_ran].min()


def test_failures_of_two_values_together_are_told_from_those_of_one() -> None:
    """`on` fails with q and runs with p."""
    failed = places(experts="on", cache="q")[::5]
    ran = [*places(experts="on", cache="p")[::4], *places(experts="off", cache="q")[::4]]
    found = survival_of(ran, failed)
    unknown = set(range(len(LEVELS))) - {*failed, *ran}
    both = [place for place in places(experts="on", cache="q") if place in unknown]
    others = [place for place in unknown if place not in both]
    assert found[both].max() < 0.3
    assert found[others].min() > 0.7


def test_the_smooth_view_is_that_of_the_posterior() -> None:
    """Against the posterior itself, by drawing latent values from the prior and weighing them."""
    rng = np.random.default_rng(3)
    ran, failed, asked = [0, 20], [5], [1, 47]
    axes = len(KERNEL.columns)
    scales = Scales(np.full(axes, survival._ALONE / axes), survival._RATE, survival._PAIRS, survival._ALL, 0.0)
    some = LEVELS[[*ran, *failed, *asked]]
    covariance = KERNEL.covariance(some, some, scales).whole
    drawn = rng.multivariate_normal(np.full(5, survival._MEAN), covariance, 400_000)
    weights = ndtr(drawn[:, 0]) * ndtr(drawn[:, 1]) * ndtr(-drawn[:, 2])
    exact = (weights[:, None] * ndtr(drawn[:, 3:])).sum(axis=0) / weights.sum()
    found = survival._smooth_survival(KERNEL, LEVELS[[*ran, *failed]], np.array([False, False, True]), LEVELS[asked])
    assert found == pytest.approx(exact, abs=0.07)
