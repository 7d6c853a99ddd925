"""A spec without what `speculative_algorithm: off` switches off: a sweep needs a value for "no speculation"."""

from __future__ import annotations

from collections.abc import Mapping

from dsabench.model.runtime import RuntimeSpec
from dsabench.model.value import KnobValue

OFF = "off"


def settled_knobs(knobs: Mapping[str, KnobValue]) -> dict[str, KnobValue]:
    """The knobs that are rendered: with speculation off, none of its own."""
    if knobs.get("speculative_algorithm") != OFF:
        return dict(knobs)
    return {
        name: value
        for name, value in knobs.items()
        if not name.startswith("speculative_") and name != "simulated_accept_length"
    }


def settle(spec: RuntimeSpec) -> RuntimeSpec:
    """The same spec with the knobs that are rendered, those of its roles included."""
    knobs = settled_knobs(spec.knobs)
    topology = spec.topology
    if topology is not None:
        roles = tuple(
            role.model_copy(update={"knobs": _own(role.knobs, {**spec.knobs, **role.knobs})}) for role in topology.roles
        )
        topology = topology.model_copy(update={"roles": roles})
    return spec.model_copy(update={"knobs": knobs, "topology": topology})


def _own(own: Mapping[str, KnobValue], merged: Mapping[str, KnobValue]) -> dict[str, KnobValue]:
    kept = settled_knobs(merged)
    return {name: value for name, value in own.items() if name in kept}
