"""How many GPUs a deployment takes."""

from __future__ import annotations

from dsabench.model.runtime import RuntimeSpec
from dsabench.runtimes.sglang.topology import role_specs


def gpus_of(spec: RuntimeSpec) -> int:
    """Ranks of all its instances: tp × pp each. Without DP attention `dp_size` copies of the model stand side by side."""
    total = 0
    for role, own in role_specs(spec):
        ranks = int(own.knobs.get("tp_size", 1)) * int(own.knobs.get("pp_size", 1))
        if own.knobs.get("dp_attention") is not True:
            ranks *= int(own.knobs.get("dp_size", 1))
        total += role.instances * ranks
    return total
