"""Write a first config for a model, a machine and a goal, from the shipped configs and sweeps."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

from dsabench import rooms
from dsabench.config.goals import GOALS, GoalName
from dsabench.config.yaml_file import read_yaml
from dsabench.errors import InputError
from dsabench.model.environment import Hardware
from dsabench.model.hardware import HARDWARE, Accelerator, accelerator
from dsabench.sglang.model_config import config_json, read_config
from dsabench.sglang.models import MODELS, DsaModel, computes, find_model, runs_on

_NODE = 8
"""GPUs of one machine at most; a deployment over several needs addresses, which only a person knows."""
_REFERENCE_MODELS = ("tiny", "small", "medium")


@dataclass(frozen=True, slots=True)
class FirstStudy:
    """What a person decides; the rest is taken from what is shipped."""

    model: str
    """A path on the model hub, its short name (`v3.2`, `glm-5`), a local folder, or a size of the reference model."""
    hardware: str | None = None
    gpus: int = 0
    goal: GoalName = "max-throughput"
    limits_ms: Mapping[str, float] = field(default_factory=dict)
    """Limits of the goal, by its keys (`ttft_p90_ms`)."""
    input_len: int | None = None
    """Tokens of a prompt; None measures a chat and a document load."""
    output_len: int | None = None
    python: str | None = None
    """Interpreter that has sglang."""

    @property
    def is_reference(self) -> bool:
        """Whether the embedded reference model is meant, which needs no GPU."""
        return self.model in _REFERENCE_MODELS

    @property
    def name(self) -> str:
        """Name of the study."""
        model = find_model(self.model)
        short = (model.name if model else self.model.rstrip("/").rpartition("/")[2]).lower()
        parts = [short, *([] if self.is_reference else [f"{self.gpus}x{self.hardware}"]), self.goal]
        return re.sub(r"[^a-z0-9.-]+", "-", "-".join(parts))[:100].strip("-.")


def goal_named(text: str, limits_ms: Mapping[str, float]) -> GoalName:
    """The goal of a name, also of its short forms `throughput` and `latency`.

    Raises:
        InputError: there is no such goal.

    """
    throughput: GoalName = "max-throughput-under-slo" if limits_ms else "max-throughput"
    known: dict[str, GoalName] = {"throughput": throughput, "latency": "min-latency"}
    known |= {name: name for name in GOALS}
    if text not in known:
        raise InputError(f"--goal {text}: no such goal (known: {', '.join(known)})")
    return known[text]


def hardware_here(found: Hardware) -> tuple[str | None, int]:
    """Name of the accelerators of this machine, and their number; None and 0 if there are none that are known."""
    for gpu in found.gpus:
        named = [
            device for device in HARDWARE.values() if device.device_name and gpu.name.startswith(device.device_name)
        ]
        if named:  # an H200 is no H20
            return max(named, key=lambda device: len(device.device_name or "")).name, len(found.gpus)
    return None, 0


class _Dumper(yaml.SafeDumper):
    """Writes short mappings and lists of scalars in one line, as a person would."""

    def represent_mapping(self, tag: str, mapping: Any, flow_style: bool | None = None) -> yaml.MappingNode:
        node = super().represent_mapping(tag, mapping, flow_style)
        node.flow_style = 1 < len(node.value) <= 8 and all(isinstance(pair[1], yaml.ScalarNode) for pair in node.value)
        return node

    def represent_sequence(self, tag: str, sequence: Any, flow_style: bool | None = None) -> yaml.SequenceNode:
        node = super().represent_sequence(tag, sequence, flow_style)
        node.flow_style = all(isinstance(item, yaml.ScalarNode) for item in node.value)
        return node


def first_config(wanted: FirstStudy) -> dict[str, Any]:
    """The config as plain data.

    Raises:
        InputError: an unknown model or hardware, a model that does not run there, or GPUs that one machine does not have.

    """
    return _of_reference(wanted) if wanted.is_reference else _of_sglang(wanted)


def config_text(wanted: FirstStudy, command: str) -> str:
    """The same as the text of a YAML file, with comments that say what to change."""
    config = first_config(wanted)
    notes = {
        "runtime": "The default setting. The search must beat it.",
        "workloads": "The load. Replace it with yours: lengths are tokens.",
        "sweeps": "What is tried: sweeps/NAME.yaml, or a space written here.",
        "objective": "`dsabench config check --show FILE` prints what the goal expands to.",
        "budget": "Limits of the search, and boots per side that confirm the best setting.",
        "gate": "For a setting that may change answers: {eval: gsm8k} proves that it is not less accurate.",
    }
    lines = [f"# Written by `{command}`."]
    for key, value in config.items():
        if key in notes:
            lines.append(f"\n# {notes[key]}")
        lines.append(yaml.dump({key: value}, Dumper=_Dumper, sort_keys=False, width=120).rstrip())
    return "\n".join(lines) + "\n"


def _of_reference(wanted: FirstStudy) -> dict[str, Any]:
    config = _template("local")
    config["name"], config["runtime"]["model"] = wanted.name, wanted.model
    config["workloads"] = _workloads(wanted, 1, config["workloads"])
    config["objective"] = {"goal": wanted.goal, **wanted.limits_ms}
    return config


def _template_for(device: Accelerator) -> str:
    """The shipped config with kernels of the device's architecture."""
    if device.platform == "rocm":
        return "mi300x"
    found = {9: "h200", 10: "b200"}.get(device.sm_major or 0)
    if found is None:
        raise InputError(f"--hardware {device.name}: no config for it is shipped to start from")
    return found


def _of_sglang(wanted: FirstStudy) -> dict[str, Any]:
    device, model = _device(wanted), _model(wanted)
    shipped = _template(_template_for(device))
    config = {key: shipped[key] for key in _TAKEN}
    config["gate"] = None  # evals download their questions: the comment says how to ask one
    config["budget"] = {key: value for key, value in config["budget"].items() if key != "gpu_hours"}
    runtime, base = config["runtime"], config["runtime"]["base"]
    runtime.pop("version", None)  # the installed one
    runtime |= {"model": wanted.model if model is None else model.path, "hardware": device.name}
    runtime["launch"] = {"python": wanted.python, "env": {}}
    sweeps: list[Any] = [name for name in config["sweeps"] if name != "dsa_parallelism_8"]
    base |= _parallel(wanted.gpus, device)
    for knob in () if wanted.gpus > 1 else ("dp_size", "dp_attention", "ep_size"):
        base.pop(knob, None)
    if (spaces := _parallel_space(wanted.gpus)) is not None:
        sweeps.insert(0, spaces)
    if _is_glm(wanted, model):
        # GLM has no dense prefill path that a threshold would choose. In GLM-5 layers may share an indexer; from GLM-5.2 on
        # they do, and have no weights for one of their own.
        base.pop("mha_threshold_tokens", None)
        own = config_json(wanted.model) or {}
        if "indexer_types" not in own and isinstance(layers := own.get("num_hidden_layers"), int):
            base["index_topk_pattern"] = "F" * layers
            sweeps.insert(0, "dsa_index_cache")
    base |= model.needs if model else {}
    config["name"], config["sweeps"] = wanted.name, sweeps
    config["workloads"] = _workloads(wanted, wanted.gpus, config["workloads"])
    config["objective"] = {"goal": wanted.goal, **wanted.limits_ms}
    return config


_TAKEN = ("name", "runtime", "workloads", "sweeps", "proposer", "objective", "budget")
"""Keys of a shipped config that suit other models and numbers of GPUs too."""


def _template(name: str) -> dict[str, Any]:
    return dict(read_yaml(rooms.find("configs", name)).data)


def _device(wanted: FirstStudy) -> Accelerator:
    if wanted.hardware is None or wanted.gpus < 1:
        raise InputError(
            "no known GPU is in this machine: name --hardware and --gpus to plan for another one, "
            "or take --model small to try dsabench on this CPU"
        )
    device = accelerator(wanted.hardware)
    if wanted.gpus > _NODE:
        raise InputError(
            f"--gpus {wanted.gpus}: more than {_NODE} GPUs are several machines; start from configs/h20-2node.yaml"
        )
    return device


def _model(wanted: FirstStudy) -> DsaModel | None:
    """The known model; None for a folder with a config.json of one of the known architectures."""
    model = find_model(wanted.model)
    if model is not None:
        if not computes(accelerator(wanted.hardware or ""), model.weights):
            places = " or ".join(runs_on(model))
            raise InputError(f"{model.path} has {model.weights} weights, which run on {places}")
        return model
    if _architecture(wanted.model) not in {one.widths.architecture for one in MODELS.values()}:
        known = ", ".join(one.path for one in MODELS.values())
        raise InputError(f"--model {wanted.model}: neither a known model ({known}) nor a folder of a DSA model")
    return None


def _architecture(model: str) -> str | None:
    listed = (read_config(model) or {}).get("architectures")
    return str(listed[0]) if isinstance(listed, list) and listed else None


def _is_glm(wanted: FirstStudy, model: DsaModel | None) -> bool:
    return model.is_glm if model else _architecture(wanted.model) == "GlmMoeDsaForCausalLM"


def _parallel(gpus: int, device: Accelerator) -> dict[str, object]:
    """One copy of the latent cache per GPU, as the documents recommend for NVIDIA; plain TP elsewhere."""
    spread = device.platform == "cuda" and gpus > 1
    return {
        "tp_size": gpus,
        "dp_size": gpus if spread else 1,
        "dp_attention": spread,
        "ep_size": gpus if spread else 1,
    }


def _parallel_space(gpus: int) -> str | dict[str, object] | None:
    if gpus == 1:
        return None
    if gpus == _NODE:
        return "dsa_parallelism_8"
    return {
        "axes": {"dp_size": [1, gpus], "dp_attention": [False, True], "ep_size": [1, gpus]},
        "forbid": [{"dp_size": 1, "dp_attention": True}, {"dp_size": gpus, "dp_attention": False}],
    }


def _workloads(wanted: FirstStudy, gpus: int, shipped: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The shipped loads with a concurrency for this many GPUs, or a single one of the given lengths."""
    if wanted.input_len is not None or wanted.output_len is not None:
        lengths = {"input_len": wanted.input_len or 1024, "output_len": wanted.output_len or 1024}
        shipped = [{"name": "load", "dataset": "random-ids", **lengths, "num_prompts": 64, "max_concurrency": 16}]
    found = []
    for load in shipped:
        at_once = load["max_concurrency"] if wanted.is_reference else max(1, load["max_concurrency"] * gpus // _NODE)
        if wanted.goal == "min-latency":
            at_once = 1  # the time of a request alone
        prompts = max(4 * at_once, min(load["num_prompts"], 32))
        found.append({**load, "num_prompts": prompts, "max_concurrency": at_once})
    return found
