"""What a model's own config.json says, where it lies on this machine."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from pydantic import JsonValue

from dsabench import rooms
from dsabench.errors import InputError
from dsabench.model.value import KnobValue
from dsabench.sglang.models import find_model
from dsabench.sglang.widths import QUANTIZATION, WIDTHS

_VOCABULARY = {"DeepseekV32ForCausalLM": 129280, "GlmMoeDsaForCausalLM": 154880}
"""Of the models in `models.py`, by architecture."""


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
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return config if isinstance(config, dict) else None


def whole_config(model: str) -> dict[str, JsonValue] | None:
    """config.json of a model that is known by its name or path; None if it is not."""
    known = find_model(model)
    if known is None:
        return None
    widths = WIDTHS["glm-5" if known.is_glm else "v3.2"]
    quantization = QUANTIZATION.get(known.weights)
    return widths.config_json() | ({} if quantization is None else {"quantization_config": quantization})


def vocabulary(model: str, knobs: Mapping[str, KnobValue], told: Mapping[str, JsonValue]) -> int | None:
    """Token ids below it are valid: what the server tells, else an override, else config.json, else the known model."""
    known = find_model(model)
    sources: tuple[object, ...] = (
        told.get("vocab_size"),
        _overrides(knobs).get("vocab_size"),
        (read_config(model) or {}).get("vocab_size"),
        None if known is None else _VOCABULARY.get(known.architecture),
    )
    return next((size for size in sources if isinstance(size, int) and not isinstance(size, bool) and size > 0), None)


def _overrides(knobs: Mapping[str, KnobValue]) -> Mapping[str, JsonValue]:
    try:
        parsed = json.loads(str(knobs.get("model_overrides", "{}")))
    except ValueError:
        return {}
    return parsed if isinstance(parsed, dict) else {}


def attention_widths(model: str) -> tuple[int, int, int]:
    """Heads of the attention, index_topk, layers: of config.json, else of the known model.

    Raises:
        InputError: neither says it.

    """
    config = read_config(model)
    if config is not None:
        found = tuple(config.get(name) for name in ("num_attention_heads", "index_topk", "num_hidden_layers"))
        heads, topk, layers = found
        if isinstance(heads, int) and isinstance(topk, int) and isinstance(layers, int):
            return heads, topk, layers
        raise InputError(f"{model}: its config.json has no num_attention_heads, index_topk or num_hidden_layers")
    known = find_model(model)
    if known is None:
        raise InputError(f"{model}: neither a folder with config.json nor a model whose widths are known")
    return known.heads, known.index_topk, known.layers
