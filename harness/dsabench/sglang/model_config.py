"""What a model's own config.json says, where it lies on this machine."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import JsonValue

from dsabench import rooms
from dsabench.errors import InputError
from dsabench.model.value import KnobValue
from dsabench.sglang.models import QUANTIZATION, WIDTHS, Widths, find_model, widths_of
from dsabench.sglang.versions import Version


def local_folder(model: str) -> Path | None:
    """The model's folder where its name is one: a path, or a folder below a `configs` room (`slices/NAME`)."""
    given = Path(model).expanduser()
    candidates = [given]
    if not given.is_absolute() and ".." not in given.parts:
        relative = Path(*given.parts[1:]) if given.parts[:1] == ("configs",) else given
        candidates += [folder / relative for folder in rooms.folders("configs")]
    return next((folder.absolute() for folder in candidates if (folder / "config.json").is_file()), None)


def read_config(model: str) -> Mapping[str, JsonValue] | None:
    """Its config.json; None where the model is not a folder here, or the file is no JSON object."""
    folder = local_folder(model)
    if folder is None:
        return None
    try:
        return json_object((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):  # the latter: it is no UTF-8
        return None


def config_json(model: str, version: Version | None = None) -> Mapping[str, JsonValue] | None:
    """Its config.json here, else that of a known model, as the transformers that a version pins reads it."""
    local, known = read_config(model), find_model(model)
    if local is not None or known is None:
        return local
    config = known.widths.config_json() | QUANTIZATION[known.weights]
    if known.is_glm and version is not None and version < (0, 5, 10):
        config["model_type"] = "deepseek_v3"  # transformers 4.57 has no GLM-5; SGLang goes by the architecture
    return config


def _known_config(model: str) -> Mapping[str, JsonValue]:
    config = config_json(model)
    if config is None:
        raise InputError(f"{model}: neither a folder with config.json nor a model whose widths are known")
    return config


def full_widths(model: str) -> Widths:
    """The widths of a known model, of the model that a slice is cut from, or of a folder's config.json.

    Raises:
        InputError: they are not known.

    """
    known = find_model(model)
    if known is not None:
        return known.widths
    config = _known_config(model)
    if "dsabench_slice" not in config:
        return widths_of(config)
    cut = (config.get("architectures"), config.get("max_position_embeddings"))  # which no slice changes
    for widths in WIDTHS.values():
        if cut == ([widths.architecture], widths.positions):
            return widths
    raise InputError(f"{model}: a slice of a model whose widths are not known")


def slice_of(model: str) -> dict[str, JsonValue] | None:
    """Of a slice: GPUs, groups and experts' ranks of the deployment that it is cut from, its layers, and its own; None of a whole model."""
    config = read_config(model) or {}
    mark = config.get("dsabench_slice")
    return {**mark, "layers": config.get("num_hidden_layers")} if isinstance(mark, dict) else None


def weights_of(config: Mapping[str, JsonValue]) -> str | None:
    """Number format of the weights by config.json: bf16, fp8, nvfp4 or mxfp4; None for any other."""
    said = config.get("quantization_config")
    if not isinstance(said, Mapping):
        return "bf16"
    method, algorithm = str(said.get("quant_method")), str(said.get("quant_algo"))
    if "NVFP4" in algorithm or method == "modelopt_fp4":
        return "nvfp4"
    return {"fp8": "fp8", "quark": "mxfp4"}.get(method)


def weights_gib(model: str) -> float | None:
    """Size of the weights: by the index in its folder, else of the known model."""
    folder, known = local_folder(model), find_model(model)
    if folder is None:
        return None if known is None else known.weights_gib
    try:
        index = json.loads((folder / "model.safetensors.index.json").read_text(encoding="utf-8"))
        return float(index["metadata"]["total_size"]) / 2**30
    except (OSError, ValueError, KeyError, TypeError):
        return None


def vocabulary(model: str, knobs: Mapping[str, KnobValue], told: Mapping[str, JsonValue]) -> int | None:
    """Token ids below it are valid: what the server tells, else an override, else config.json, else the known model."""
    sources = (told, overrides_of(knobs), config_json(model) or {})
    sizes = (source.get("vocab_size") for source in sources)
    return next((size for size in sizes if isinstance(size, int) and not isinstance(size, bool) and size > 0), None)


def overrides_of(knobs: Mapping[str, KnobValue]) -> Mapping[str, JsonValue]:
    """What the knob `model_overrides` sets in config.json; nothing where it is no JSON object."""
    return json_object(str(knobs.get("model_overrides"))) or {}


def json_object(text: str) -> dict[str, Any] | None:
    """A JSON object; None where the text is none."""
    try:
        value = json.loads(text)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def attention_widths(model: str) -> tuple[int, int, int]:
    """Heads of the attention, index_topk, layers: of config.json, else of the known model.

    Raises:
        InputError: neither says it.

    """
    config = _known_config(model)
    heads, topk, layers = (config.get(name) for name in ("num_attention_heads", "index_topk", "num_hidden_layers"))
    if isinstance(heads, int) and isinstance(topk, int) and isinstance(layers, int):
        return heads, topk, layers
    raise InputError(f"{model}: its config.json has no num_attention_heads, index_topk or num_hidden_layers")
