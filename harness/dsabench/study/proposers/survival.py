"""How likely a setting runs, given those that ran and those that failed: the mean of two views.

Rules say which values make a setting fail, as a kernel that does not know a data type does. A Gaussian process that classifies sees what
adds up over many axes, as memory does (Rasmussen and Williams, 2006, chapter 3: probit, Laplace's approximation). Its scales are
fixed: a few failures cannot tell them, and one failure shall not condemn all that shares a value with it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.linalg import cho_solve, solve_triangular
from scipy.special import log_ndtr, ndtr

from dsabench.study.proposers.failure_rules import FailureRules
from dsabench.study.proposers.gaussian_process import Floats, Scales, SettingKernel

_HOPELESS = -1e4
"""Added where a rule is all but certain: such settings come last, however small the gain of the others is."""
_LEAST = 1e-12
_MEAN = 1.6
"""Prior mean of the latent value: before anything is known, four of five settings run."""
_ALONE, _PAIRS, _ALL, _RATE = 2.0, 4.0, 0.5, 1.0
_NEWTON, _CONVERGED = 20, 1e-6


def log_survival(kernel: SettingKernel, ended: Floats, failed: npt.NDArray[np.bool_], levels: Floats) -> Floats:
    """Logarithm of the probability that a setting runs.

    Args:
        kernel: of the space.
        ended: (n, levels) of the settings that ran or failed.
        failed: (n) which of them failed.
        levels: (m, levels) of the settings in question.

    """
    if not failed.any():
        return np.zeros(len(levels))
    rules = FailureRules(kernel, ended[~failed], ended[failed])
    likely = 0.5 * (_smooth_survival(kernel, ended, failed, levels) + rules.survival(levels))
    found: Floats = np.log(np.maximum(likely, _LEAST)) + np.where(rules.is_hopeless(levels), _HOPELESS, 0.0)
    return found


def _smooth_survival(kernel: SettingKernel, ended: Floats, failed: npt.NDArray[np.bool_], levels: Floats) -> Floats:
    axes = len(kernel.columns)
    scales = Scales(np.full(axes, _ALONE / axes), _RATE, _PAIRS, _ALL, 0.0)
    covariance = kernel.covariance(ended, ended, scales).whole
    sign = np.where(failed, -1.0, 1.0)
    latent = np.full(len(sign), _MEAN)
    for _ in range(_NEWTON):
        slope, curvature = _probit(sign, latent)
        root, factor = _factor(covariance, curvature)
        wanted = curvature * (latent - _MEAN) + slope
        inner = cho_solve((factor, True), root * (covariance @ wanted))
        before, latent = latent, _MEAN + covariance @ (wanted - root * inner)
        if np.abs(latent - before).max() < _CONVERGED:
            break
    slope, curvature = _probit(sign, latent)
    root, factor = _factor(covariance, curvature)
    across = kernel.covariance(ended, levels, scales).whole
    reduced = solve_triangular(factor, root[:, None] * across, lower=True, check_finite=False)
    variance = np.maximum(scales.variance - np.einsum("ij,ij->j", reduced, reduced), 0.0)
    found: Floats = ndtr((_MEAN + slope @ across) / np.sqrt(1.0 + variance))
    return found


def _factor(covariance: Floats, curvature: Floats) -> tuple[Floats, npt.NDArray[Any]]:
    """Roots of the curvatures, and the lower Cholesky factor of 1 + root · covariance · root."""
    root = np.sqrt(curvature)
    return root, np.linalg.cholesky(np.eye(len(root)) + root[:, None] * covariance * root)


def _probit(sign: Floats, latent: Floats) -> tuple[Floats, Floats]:
    """Derivative of log Φ(sign · latent), and minus its second derivative."""
    z = sign * latent
    ratio = np.exp(-0.5 * z**2 - 0.5 * np.log(2 * np.pi) - log_ndtr(z))
    return sign * ratio, ratio * (ratio + z)
