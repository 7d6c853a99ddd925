"""Every command line that is shown to the wheels' parsers: all recipes, and each knob with each of its values."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from dsabench.config.load import load_launch
from dsabench.model.knobs import KNOBS, Knob
from dsabench.model.runtime import RuntimeSpec
from dsabench.model.topology import ROUTER
from dsabench.model.value import KnobValue
from dsabench.runtimes.command import Launch
from dsabench.runtimes.plan import LaunchPlan
from dsabench.sglang.accepts import Accepted
from dsabench.sglang.plan import plan_sglang

CHECKED = ("0.5.9", "0.5.10", "0.5.12", "0.5.16", "0.5.23")
RECIPES = Path(__file__).parents[2] / "configs/recipes"
TEXTS: dict[str, str] = {
    "pp_layer_partition": "30,31",
    "ib_devices": "mlx5_0,mlx5_1",
    "model_overrides": '{"num_hidden_layers": 5}',
    "speculative_adaptive_config": "adaptive.json",
    "quantization": "modelopt_fp4",
    "moe_runner_backend": "flashinfer_trtllm",
    "moe_a2a_backend": "deepep",
}
"""Values of knobs that are free text, where not any text will do."""

COMPANIONS: dict[str, dict[str, KnobValue]] = {
    "dp_attention": {"dp_size": 8},
    "cp_mode": {"prefill_cp": True},
    "speculative_adaptive_config": {"speculative_algorithm": "EAGLE", "speculative_adaptive": True},
    **{
        name: {"speculative_algorithm": "EAGLE"} for name in KNOBS if re.match(r"speculative_(?!algorithm|ad.*g)", name)
    },
    **{name: {"hisparse": True} for name in KNOBS if name.startswith("hisparse_")},
    "simulated_accept_length": {"speculative_algorithm": "EAGLE"},
}
"""Settings without which a knob is refused."""

Line = tuple[str, tuple[str, ...]]
"""What it is, and the words behind the program's name."""


def command_lines(accepted: Accepted) -> Iterator[Line]:
    """All that this version gets; what is refused before rendering is left out."""
    for file in sorted(RECIPES.glob("*.yaml")):
        config = load_launch(file)
        launch = Launch(entry=config.launch.entry, sites=config.launch.sites)
        yield from _lines(file.stem, plan_sglang(config.spec({}), accepted, launch))
    for knob in KNOBS.values():
        for value in values_of(knob):
            knobs = {**COMPANIONS.get(knob.name, {}), knob.name: value}
            spec = RuntimeSpec(kind="sglang", model="deepseek-ai/DeepSeek-V3.2", knobs=knobs)
            yield from _lines(f"{knob.name}={value}", plan_sglang(spec, accepted, Launch()))


def values_of(knob: Knob) -> tuple[KnobValue, ...]:
    """Each choice, or one value that fits."""
    if knob.choices:
        return knob.choices
    if knob.type is bool:
        return (True, False)
    if knob.type is str:
        return (TEXTS.get(knob.name, "text"),)
    least = max(knob.minimum or 0, 1)
    return (0.5,) if knob.name == "mem_fraction_static" else (least,) if knob.type is int else (float(least),)


def _lines(label: str, commands: LaunchPlan) -> Iterator[Line]:
    if any(remark.severity == "error" for remark in commands.remarks):
        return
    for process in commands.processes:
        if process.role != ROUTER:
            first = process.argv.index("--model-path")
            # A placeholder stands for an address, a port or a path.
            words = (re.sub(r"\$\w+|<\w+>", "1", word) for word in process.argv[first:])
            yield f"{label} {process.role} {process.node_rank}", tuple(words)
