"""Hardware + model + strategy → a spec: the choices of the cookbook's command generator, and its refusals."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from dsabench.errors import InputError
from dsabench.model.hardware import Accelerator, accelerator
from dsabench.model.runtime import RuntimeSpec
from dsabench.model.value import KnobValue
from dsabench.sglang.models import DsaModel, computes, model_named, runs_on

STRATEGIES = ("tp", "dp", "ep", "mtp")
OFFERED = ("h200", "b200", "mi300x", "mi355x")
"""Accelerators that the generator knows; others are served from a config."""

_REQUIREMENT = {"nvfp4": "MD01", "mxfp4": "MD02"}
_NO_TOOLS = "MD03"

_MTP: dict[str, KnobValue] = {
    "speculative_algorithm": "EAGLE",
    "speculative_num_steps": 3,
    "speculative_eagle_topk": 1,
    "speculative_num_draft_tokens": 4,
}


@dataclass(frozen=True, slots=True)
class Wish:
    """What the user chose."""

    hardware: str
    model: str
    strategies: tuple[str, ...] = ("tp",)
    reasoning_parser: bool = False
    tool_call_parser: bool = False


@dataclass(frozen=True, slots=True)
class Generated:
    """The spec, and which choices it does not carry out."""

    spec: RuntimeSpec
    notes: tuple[str, ...]


def generate(wish: Wish) -> Generated:
    """The generator's command as a spec.

    Raises:
        InputError: a word it does not know, or a combination it refuses, with the rule's id.

    """
    device, model = _device(wish.hardware), model_named(wish.model)
    strategies = _known(wish.strategies)
    _refuse(model, device, wish)
    knobs: dict[str, KnobValue] = {"tp_size": model.tp_size, **model.needs}
    left_out: list[str] = []
    if model.needs:
        # The generator has one command for each of these checkpoints and hides its other choices.
        left_out += [name for name in strategies if name != "tp"]
        left_out += ["reasoning parser"] * wish.reasoning_parser + ["tool call parser"] * wish.tool_call_parser
    else:
        knobs |= _strategy(strategies) | _amd(device) | _parsers(model, wish)
    notes = [f"{model.name} is served without {', '.join(left_out)}, as the generator does"] if left_out else []
    spec = RuntimeSpec(kind="sglang", model=model.path, knobs=knobs, hardware=device.name)
    return Generated(spec, tuple(notes))


def _device(name: str) -> Accelerator:
    device = accelerator(name)
    if device.name not in OFFERED:
        raise InputError(f"--hardware {name}: the generator knows {', '.join(OFFERED)}; write a config for others")
    return device


def _known(strategies: Iterable[str]) -> tuple[str, ...]:
    wanted = tuple(dict.fromkeys(name.strip().lower() for name in strategies))
    for name in wanted:
        if name not in STRATEGIES:
            raise InputError(f"--strategy: {name or 'nothing'} is no strategy (known: {', '.join(STRATEGIES)})")
    if "tp" not in wanted:
        raise InputError("--strategy: tp is part of every strategy; add it")
    return wanted


def _refuse(model: DsaModel, device: Accelerator, wish: Wish) -> None:
    if not computes(device, model.weights):
        rule = _REQUIREMENT[model.weights]
        needed = " or ".join(runs_on(model))
        raise InputError(f"{rule}: {model.name} has {model.weights} weights, which run on {needed}, not {device.name}")
    if wish.tool_call_parser and model.tool_call_parser is None:
        raise InputError(f"{_NO_TOOLS}: {model.name} has no tool calls; leave the tool call parser out")


def _strategy(strategies: tuple[str, ...]) -> dict[str, KnobValue]:
    knobs: dict[str, KnobValue] = {}
    if "dp" in strategies:
        knobs |= {"dp_size": 8, "dp_attention": True}
    if "ep" in strategies:
        knobs |= {"ep_size": 8}
    return knobs | (_MTP if "mtp" in strategies else {})


def _amd(device: Accelerator) -> dict[str, KnobValue]:
    if device.platform != "rocm":
        return {}
    return {
        "trust_remote_code": True,
        "prefill_backend": "tilelang",
        "decode_backend": "tilelang",
        "cuda_graph_max_bs": 64,
    }


def _parsers(model: DsaModel, wish: Wish) -> dict[str, KnobValue]:
    knobs: dict[str, KnobValue] = {}
    if wish.tool_call_parser and model.tool_call_parser is not None:
        knobs["tool_call_parser"] = model.tool_call_parser
        if model.chat_template is not None:
            knobs["chat_template"] = model.chat_template
    if wish.reasoning_parser:
        knobs["reasoning_parser"] = model.reasoning_parser
    return knobs
