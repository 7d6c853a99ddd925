"""The two kinds of YAML file, as the user writes them."""

from __future__ import annotations

from typing import Annotated

from pydantic import Discriminator, Field, Tag

from dsabench.config.knob_types import KnobAxes, KnobConditions, KnobSettings
from dsabench.config.specs import RuntimeConfig
from dsabench.model.study import Budget, GateSpec, Objective, ProposerSpec
from dsabench.model.value import Value
from dsabench.model.workload import Workload

SafeName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")]
"""Serves as a folder's name: letters, digits, `.`, `_` and `-`, beginning with a letter or digit."""


class SweepFile(Value):
    """A search space: `sweeps/NAME.yaml`, or the same inline in a config."""

    axes: KnobAxes
    """Knob → the values to try."""
    when: KnobConditions = Field(default_factory=dict)
    """Knob → the settings under which its axis is active; otherwise the base's value holds."""
    forbid: tuple[KnobSettings, ...] = ()
    """Combinations of settings (the base's included) that are never tried."""


def _sweep_form(given: object) -> str:
    return "name" if isinstance(given, str) else "inline"


SweepEntry = Annotated[
    Annotated[str, Tag("name"), Field(min_length=1, max_length=200)] | Annotated[SweepFile, Tag("inline")],
    Discriminator(_sweep_form),
]


class LaunchFile(Value):
    """A server alone, for `dsabench launch`: `configs/recipes/NAME.yaml`."""

    name: SafeName
    """Names the recipe."""
    runtime: RuntimeConfig
    """What serves the model, and its settings."""


class ConfigFile(Value):
    """One machine's study: `configs/NAME.yaml`."""

    name: SafeName
    """Names the study and its folder below results/."""
    runtime: RuntimeConfig
    """What serves the model, and the settings of the default."""
    workloads: Annotated[tuple[Workload, ...], Field(min_length=1)]
    """Load points; each setting is measured under all of them in one boot."""
    sweeps: tuple[SweepEntry, ...] = ()
    """Names of sweeps/NAME.yaml, paths, or inline spaces; together they make one joint space."""
    first: tuple[KnobSettings, ...] = ()
    """Settings to measure before the proposer is asked, in this order; axes not named keep the base's value."""
    proposer: ProposerSpec = ProposerSpec()
    """What chooses the next setting."""
    objective: Objective
    """What counts as better."""
    budget: Budget = Budget()
    """Where the sweep stops."""
    gate: GateSpec | None = None
    """The accuracy eval that the best setting must pass; null where no setting changes numerics."""
