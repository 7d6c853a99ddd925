"""What the failures of a study have in common, as `gp` sees it when it puts the like of them last."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from dsabench.model.study_result import FailingFamily
from dsabench.model.value import value_text
from dsabench.study.proposers.failure_rules import FAMILY, FailureRules
from dsabench.study.proposers.gaussian_process import Floats, SettingKernel
from dsabench.study.proposers.legal_settings import is_ordered
from dsabench.study.proposers.proposer import Observation, SearchTask


def failing_families(task: SearchTask, history: Sequence[Observation]) -> tuple[FailingFamily, ...]:
    """Those that all but certainly fail and explain three failures or more; none in a space too large to list."""
    legal, kernel = task.legal, SettingKernel.of_space(task.space, task.legal.codes)
    ended = [one for one in history if not one.is_under_way]
    failed = np.array([one.failed or one.violation > 0 for one in ended], dtype=bool)
    if legal.listed is None or not kernel.columns or failed.sum() < FAMILY:
        return ()
    levels, untried = kernel.levels(legal.codes), task.seen(history).unseen
    tried = kernel.levels(legal.encode([one.assignment for one in ended]))

    def found() -> Iterator[FailingFamily]:
        for rule in FailureRules(kernel, tried[~failed], tried[failed]).families():
            its = failed & rule.covers(tried)
            faults = sorted(
                {one.fault or "outside a constraint" for one, member in zip(ended, its, strict=True) if member}
            )
            shared = " with ".join(_words(task, kernel, one) for one in rule.conditions)
            yield FailingFamily(shared, int(its.sum()), tuple(faults), int((untried & rule.covers(levels)).sum()))

    return tuple(sorted(found(), key=lambda one: -one.failed))


def _words(task: SearchTask, kernel: SettingKernel, condition: Floats) -> str:
    """Such as `prefill_backend=fa3`, or `chunked_prefill_size of 8192 and more`."""
    place = int(kernel.axis[np.argmax(condition)])
    axis = task.space.axes[kernel.columns[place]]
    held = condition[kernel.axis == place]
    if held[-1]:
        return f"{axis.name} inactive"
    values = [value for value, holds in zip(axis.values, held, strict=False) if holds]
    if len(values) == 1 or not is_ordered(axis):
        return f"{axis.name}={'|'.join(map(value_text, values))}"
    numbers = sorted(float(value) for value in axis.values if not isinstance(value, str))
    least, most = min(map(float, values)), max(map(float, values))
    return f"{axis.name} of {least:g} and more" if most == numbers[-1] else f"{axis.name} of {most:g} and less"
