"""Which axis decided the objective, after the fact."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence

from dsabench.model.knobs import KnobValue

ENOUGH = 40
"""Settings from which PED-ANOVA's densities mean something; fewer are shown as plain means (`main_effects`)."""

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


def importances(observed: Observed, *, maximize: bool) -> dict[str, float] | None:
    """Axis → share of what separates the best tenth from all (PED-ANOVA, Watanabe et al. 2023); None from few settings.

    Axes that some settings lack (conditional ones) are left out.
    """
    axes = {name: values for name, values in varying(observed).items() if all(name in knobs for knobs, _ in observed)}
    if len(observed) < ENOUGH or not axes:
        return None
    import optuna  # noqa: PLC0415  (half a second that only a large study pays)
    from optuna.distributions import BaseDistribution, CategoricalDistribution  # noqa: PLC0415
    from optuna.importance import PedAnovaImportanceEvaluator  # noqa: PLC0415

    distributions: dict[str, BaseDistribution] = {
        name: CategoricalDistribution(tuple(map(str, values))) for name, values in axes.items()
    }
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(direction="maximize" if maximize else "minimize")
    for knobs, value in observed:
        params = {name: str(knobs[name]) for name in axes}
        study.add_trial(optuna.trial.create_trial(params=params, distributions=distributions, value=value))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = optuna.importance.get_param_importances(study, evaluator=PedAnovaImportanceEvaluator())
    return {name: float(share) for name, share in found.items()}
