"""What a record's reader must know before believing it: what was not the model's own doing."""

from __future__ import annotations

from dsabench.model.runtime import RuntimeSpec
from dsabench.model.topology import SINGLE

RANDOM_WEIGHTS = "random weights"
"""Speeds are those of the shapes; nothing that hangs on the values (outputs, accuracy) means anything."""
SIMULATED = "simulated"
"""Something that hangs on the values was pinned (accept length) or came from random ones (HiSparse's hits)."""


def labels_of(spec: RuntimeSpec) -> tuple[str, ...]:
    """The labels of a spec's records."""
    roles = (spec.topology or SINGLE).roles
    settings = [{**spec.knobs, **role.knobs} for role in roles]
    random = any(knobs.get("load_format") == "dummy" for knobs in settings)
    speculates = any(knobs.get("speculative_algorithm", "off") != "off" for knobs in settings)
    pinned = any("simulated_accept_length" in knobs for knobs in settings) and speculates
    hisparse = any(knobs.get("hisparse") is True for knobs in settings)
    simulated = pinned or (random and (speculates or hisparse))
    return (RANDOM_WEIGHTS,) * random + (SIMULATED,) * simulated
