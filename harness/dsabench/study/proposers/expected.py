"""What measured settings are worth, with what was measured of the like of them: one lucky measurement makes no winner."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from dsabench.model.space import canonical
from dsabench.study.proposers.proposer import Observation, SearchTask

Worth = Callable[[SearchTask, Sequence[Observation]], list[float | None]]
"""What the settings of a history are worth, by which the best one is told; None without a value."""
LEAST = 8
"""Settings with a value from which on a model of them is believed more than each by itself."""


def measured_values(task: SearchTask, history: Sequence[Observation]) -> list[float | None]:  # noqa: ARG001  (a `Worth`)
    """The objective as measured."""
    return [one.value for one in history]


def expected_values(task: SearchTask, history: Sequence[Observation]) -> list[float | None]:
    """Per setting, the posterior mean of the objective (of its logarithm, which is what `gp` models); None without a value.

    With fewer than `LEAST` values, or with one that has no logarithm, they are the values as measured.
    """
    measured = measured_values(task, history)
    told, values = [one for one in history if one.value is not None], [one for one in measured if one is not None]
    if len(values) < LEAST or min(values) <= 0:
        return measured
    import numpy as np  # noqa: PLC0415  (half a second, with scipy)

    from dsabench.study.proposers.gaussian_process import SettingKernel, fit_process  # noqa: PLC0415
    from dsabench.study.proposers.gp_choice import NOISE  # noqa: PLC0415

    codes = task.legal.encode([canonical(task.space, task.base, one.assignment) for one in told])
    kernel = SettingKernel.of_space(task.space, codes)
    if not kernel.columns:
        return measured
    levels = kernel.levels(codes)
    process = fit_process(kernel, levels, np.log(values), noise=NOISE)
    means = iter(process.predict(levels)[0])
    return [None if value is None else math.exp(next(means)) for value in measured]
