"""Which setting to measure next: the one with the largest expected gain, among those that are likely to run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr

from dsabench.study.proposers.gaussian_process import FittedProcess, Floats, SettingKernel, fit_process
from dsabench.study.proposers.legal_settings import Codes
from dsabench.study.proposers.survival import log_survival

NOISE = 0.02
"""Expected standard deviation of the logarithm of a measurement."""
_EQUAL = 0.1
"""Settings of a level that count as much as the prior that its seconds are those of the others."""
_ASSUMED_SHARE, _LEAST_SHARE = 0.5, 0.05
"""Share of a setting's seconds that its trials take: before it is known, and at least."""
_FEW = 3
"""Settings whose seconds are known before they are predicted."""


@dataclass(frozen=True)
class KnownSettings:
    """What is known of some settings."""

    codes: Codes
    values: Floats
    """Logarithm of the objective, larger is better; NaN where a setting failed or is under way. One that is infeasible has one."""
    failed: npt.NDArray[np.bool_]
    """Whether a setting failed or is infeasible."""
    seconds: Floats
    """Of boot and trials; NaN where unknown."""
    boot_seconds: Floats
    """Of the boot alone; NaN where unknown."""

    @property
    def has_value(self) -> npt.NDArray[np.bool_]:
        """Whether a setting has a value, feasible or not."""
        return ~np.isnan(self.values)

    @property
    def runs(self) -> npt.NDArray[np.bool_]:
        """Whether a setting has a value that may win."""
        return self.has_value & ~self.failed

    @property
    def is_under_way(self) -> npt.NDArray[np.bool_]:
        """Whether a setting has no result yet."""
        return ~(self.has_value | self.failed)


Prior = Callable[[Codes], Floats]
"""What earlier studies let expect of settings: the logarithm of the objective, up to a constant."""
_BELIEFS = (1.0, 0.5, 0.0)
"""How much of it may be believed."""
_DOUBT = 2.0
"""By how much the logarithm of the likelihood must be larger with the whole of it than without."""


def log_expected_gain(known: KnownSettings, kernel: SettingKernel, codes: Codes, prior: Prior | None = None) -> Floats:
    """Per setting, the logarithm of the expected gain per second.

    The gain is the expected improvement over the best posterior mean of a measured setting, so that a lucky measurement raises
    no bar. It is weighed with the probability that the setting runs, and divided by the seconds that it is expected to take.
    What earlier studies let expect is the mean of the process, as far as the values bear it out.
    """
    levels = kernel.levels(codes)
    told, values = known.codes[known.has_value], known.values[known.has_value]
    process, belief = _believed(kernel, told, values, prior)

    def expected(some: Codes) -> Floats:
        return np.zeros(len(some)) if prior is None or not belief else belief * prior(some)

    runs = known.codes[known.runs]
    incumbent = float((process.predict(kernel.levels(runs))[0] + expected(runs)).max())
    under_way = known.codes[known.is_under_way]
    if len(under_way):
        # Believe that they come out as predicted: then their like have little left to tell, and a batch spreads.
        ahead = process.predict(kernel.levels(under_way))[0]
        all_codes = np.concatenate([told, under_way])
        residuals = np.concatenate([values - expected(told), ahead])
        process = fit_process(kernel, kernel.levels(all_codes), residuals, noise=NOISE)
    mean, deviation = process.predict(levels)
    gain = _log_improvement((mean + expected(codes) - incumbent) / deviation) + np.log(deviation)
    return gain + log_running(known, kernel, levels) - _log_seconds(known, kernel, levels)


def _believed(kernel: SettingKernel, codes: Codes, values: Floats, prior: Prior | None) -> tuple[FittedProcess, float]:
    """The process of what the prior leaves open, and the belief in the prior that explains the values best."""
    levels = kernel.levels(codes)
    if prior is None:
        return fit_process(kernel, levels, values, noise=NOISE), 0.0
    means = prior(codes)
    fits = [(fit_process(kernel, levels, values - belief * means, noise=NOISE), belief) for belief in _BELIEFS]
    return min(fits, key=lambda one: one[0].misfit + _DOUBT * one[1])


def log_share_of_trials(known: KnownSettings) -> float:
    """Logarithm of the share of a setting's seconds that its trials take: what it costs on a server that runs already."""
    share = 1.0 - known.boot_seconds[known.runs] / known.seconds[known.runs]
    share = share[np.isfinite(share)]
    return float(np.log(np.clip(np.median(share), _LEAST_SHARE, 1.0))) if len(share) else np.log(_ASSUMED_SHARE)


def _log_improvement(z: Floats) -> Floats:
    """log(φ(z) + z Φ(z)), also where that is too small for a float (Ament et al., 2023)."""
    far = z < -6.0
    near = np.where(far, 0.0, z)
    plain = np.log(np.exp(-0.5 * near**2) / np.sqrt(2 * np.pi) + near * ndtr(near))
    away = np.where(far, z, -6.0)
    # Φ(z)/φ(z) → 1/|z| − 1/|z|³ + 3/|z|⁵: the improvement is φ(z)/z² to first order.
    found: Floats = np.where(far, -0.5 * away**2 - 0.5 * np.log(2 * np.pi) - 2 * np.log(-away), plain)
    return found


def log_running(known: KnownSettings, kernel: SettingKernel, levels: Floats) -> Floats:
    """Logarithm of the probability that a setting runs, and may win."""
    ended = ~known.is_under_way
    return log_survival(kernel, kernel.levels(known.codes[ended]), known.failed[ended], levels)


def _log_seconds(known: KnownSettings, kernel: SettingKernel, levels: Floats) -> Floats | float:
    """Logarithm of the expected seconds, a sum of one effect per level; 0 where too few are known."""
    told = known.has_value & ~np.isnan(known.seconds) & (known.seconds > 0)
    if told.sum() < _FEW:
        return 0.0
    having, seconds = kernel.levels(known.codes[told]), np.log(known.seconds[told])
    precision = having.T @ having + _EQUAL * np.eye(having.shape[1])
    effects = np.linalg.solve(precision, having.T @ (seconds - seconds.mean()))
    found: Floats = seconds.mean() + levels @ effects
    return found
