"""Which axis decided the objective, after the fact."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from dsabench.model.value import KnobValue

Observed = Sequence[tuple[Mapping[str, KnobValue], float]]
"""Settings with the objective's value."""


def varying(observed: Observed) -> dict[str, tuple[KnobValue, ...]]:
    """Axis → its values, of those that took more than one."""
    names = list(dict.fromkeys(name for knobs, _ in observed for name in knobs))
    values = {name: dict.fromkeys(knobs[name] for knobs, _ in observed if name in knobs) for name in names}
    return {name: tuple(of_axis) for name, of_axis in values.items() if len(of_axis) > 1}


def main_effects(observed: Observed) -> dict[str, dict[KnobValue, tuple[float, int]]]:
    """Axis → value → (relative difference of its settings' geometric mean from all settings', how many they are)."""
    logs = [(knobs, math.log(value)) for knobs, value in observed if value > 0]
    if not logs:
        return {}
    overall = math.fsum(log for _, log in logs) / len(logs)
    found: dict[str, dict[KnobValue, tuple[float, int]]] = {}
    for axis, values in varying(observed).items():
        for value in values:
            having = [log for knobs, log in logs if axis in knobs and knobs[axis] == value]
            if having:
                effect = math.expm1(math.fsum(having) / len(having) - overall)
                found.setdefault(axis, {})[value] = (effect, len(having))
    return found


def variance_shares(observed: Observed) -> dict[str, float]:
    """Axis → share of the variance of the objective's logarithm that its values explain by themselves (first order).

    Corrected for what so many values explain by chance (epsilon squared, Kelley 1935), never below 0. What is left to 1 are
    interactions and noise. Axes that some settings lack (conditional ones), or with a value for each setting, are left out.
    """
    logs = [(knobs, math.log(value)) for knobs, value in observed if value > 0]
    overall = math.fsum(log for _, log in logs) / max(len(logs), 1)
    total = math.fsum((log - overall) ** 2 for _, log in logs)
    shares: dict[str, float] = {}
    for axis, values in varying(observed).items():
        free = len(logs) - len(values)
        if total == 0.0 or free < 1 or not all(axis in knobs for knobs, _ in logs):
            continue
        of_value = ([log for knobs, log in logs if knobs[axis] == value] for value in values)
        within = math.fsum((log - math.fsum(of) / len(of)) ** 2 for of in of_value for log in of)
        shares[axis] = max(0.0, 1.0 - within / total * (len(logs) - 1) / free)
    return shares
