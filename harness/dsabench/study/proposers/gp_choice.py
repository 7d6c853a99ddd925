"""Which setting to measure next: the one with the largest expected gain, among those that are likely to run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import log_ndtr, ndtr

from dsabench.study.proposers.gaussian_process import Floats, SettingKernel, fit_process
from dsabench.study.proposers.legal_settings import Codes

NOISE = 0.02
"""Expected standard deviation of the logarithm of a measurement."""
FAMILY = 3
"""Settings that fail alike before their common value is avoided."""
_HOPELESS = -1e4
"""Added to the rating of another one of them: they come last, however small the gain of the others is."""
_FAIL_NOISE = 0.1
"""The same of whether a setting runs, from 0 to 1: a setting may fail by chance."""


@dataclass(frozen=True)
class KnownSettings:
    """What is known of some settings."""

    codes: Codes
    values: Floats
    """Logarithm of the objective, larger is better; NaN where a setting failed or is under way."""
    faults: Sequence[str | None]
    """Why a setting failed or is infeasible."""
    seconds: Floats
    """Of boot and trials; NaN where unknown."""

    @property
    def runs(self) -> npt.NDArray[np.bool_]:
        """Whether a setting has a value that may win."""
        return ~np.isnan(self.values)

    @property
    def failed(self) -> npt.NDArray[np.bool_]:
        """Whether a setting failed or is infeasible."""
        return np.array([fault is not None for fault in self.faults], dtype=bool)

    @property
    def is_under_way(self) -> npt.NDArray[np.bool_]:
        """Whether a setting has no result yet."""
        return ~(self.runs | self.failed)


def log_expected_gain(known: KnownSettings, kernel: SettingKernel, codes: Codes) -> Floats:
    """Per setting, the logarithm of the expected gain per second.

    The gain is the expected improvement over the best posterior mean of a measured setting, so that a lucky measurement raises
    no bar. It is weighed with the probability that the setting runs, and divided by the seconds that it is expected to take.
    """
    told, values = known.codes[known.runs], known.values[known.runs]
    process = fit_process(kernel, told, values, noise=NOISE)
    incumbent = float(process.predict(told)[0].max())
    under_way = known.codes[known.is_under_way]
    if len(under_way):
        # Believe that they come out as predicted: then their like have little left to tell, and a batch spreads.
        expected = process.predict(under_way)[0]
        process = fit_process(
            kernel, np.concatenate([told, under_way]), np.concatenate([values, expected]), noise=NOISE
        )
    mean, deviation = process.predict(codes)
    gain = _log_improvement((mean - incumbent) / deviation) + np.log(deviation)
    return gain + log_survival(known, kernel, codes) - _log_seconds(known, kernel, codes)


def _log_improvement(z: Floats) -> Floats:
    """log(φ(z) + z Φ(z)), also where that is too small for a float (Ament et al., 2023)."""
    far = z < -6.0
    near = np.where(far, 0.0, z)
    plain = np.log(np.exp(-0.5 * near**2) / np.sqrt(2 * np.pi) + near * ndtr(near))
    away = np.where(far, z, -6.0)
    # Φ(z)/φ(z) → 1/|z| − 1/|z|³ + 3/|z|⁵: the improvement is φ(z)/z² to first order.
    found: Floats = np.where(far, -0.5 * away**2 - 0.5 * np.log(2 * np.pi) - 2 * np.log(-away), plain)
    return found


def log_survival(known: KnownSettings, kernel: SettingKernel, codes: Codes) -> Floats:
    """Logarithm of the probability that a setting runs."""
    failed, ended = known.failed, ~known.is_under_way
    if not failed.any() or not known.runs.any():
        return np.zeros(len(codes))
    process = fit_process(kernel, known.codes[ended], failed[ended].astype(float), noise=_FAIL_NOISE)
    mean, deviation = process.predict(codes)
    found: Floats = log_ndtr((0.5 - mean) / np.sqrt(deviation**2 + _FAIL_NOISE**2))
    return found + np.where(in_failing_family(known, kernel, codes), _HOPELESS, 0.0)


def in_failing_family(known: KnownSettings, kernel: SettingKernel, codes: Codes) -> npt.NDArray[np.bool_]:
    """Whether a setting has a value of an axis with which `FAMILY` settings or more failed alike and none ran."""
    found = np.zeros(len(codes), dtype=bool)
    for column in kernel.columns:
        for value in np.unique(known.codes[:, column]):
            having = known.codes[:, column] == value
            faults = Counter(fault for fault, one in zip(known.faults, having, strict=True) if one and fault)
            if max(faults.values(), default=0) >= FAMILY and not (having & known.runs).any():
                found |= codes[:, column] == value
    return found


def _log_seconds(known: KnownSettings, kernel: SettingKernel, codes: Codes) -> Floats | float:
    """Logarithm of the expected seconds; 0 where too few are known."""
    told = known.runs & ~np.isnan(known.seconds) & (known.seconds > 0)
    if told.sum() < 3:
        return 0.0
    return fit_process(kernel, known.codes[told], np.log(known.seconds[told]), noise=0.1).predict(codes)[0]
