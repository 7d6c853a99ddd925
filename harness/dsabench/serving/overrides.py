"""`--json-model-override-args`: what may be changed of a model's config. Of sglang's many keys one means something here."""

from __future__ import annotations

import json
from dataclasses import replace

from dsabench.errors import InputError
from dsabench.reference.sizes import SIZES, ModelSize

FLAG = "--json-model-override-args"
_PATTERN = "index_topk_pattern"


def model_size(name: str, overrides: str) -> ModelSize:
    """The model of that name with the JSON object merged into it.

    `index_topk_pattern` has a letter per layer (sglang 0.5.23 model_config.py:506): F computes the indexer, S attends to
    what the nearest F before it selected. The first is F.

    Raises:
        InputError: no JSON object, an unknown key, or a pattern that does not fit the model.

    """
    size = SIZES[name]
    try:
        given = json.loads(overrides)
    except ValueError as error:
        raise InputError(f"{FLAG}: {overrides!r} is no JSON: {error}") from error
    if not isinstance(given, dict):
        raise InputError(f"{FLAG}: {overrides!r} is no JSON object")
    unknown = sorted(given.keys() - {_PATTERN})
    if unknown:
        raise InputError(f"{FLAG}: {unknown[0]}: no such key here (allowed: {_PATTERN})")
    pattern = given.get(_PATTERN)
    if pattern is None:
        return size
    if not isinstance(pattern, str) or len(pattern) != size.layers or set(pattern) - set("FS") or pattern[0] != "F":
        example = "F" + "S" * (size.layers - 1)
        raise InputError(
            f"{FLAG}: {_PATTERN}: {pattern!r} is not allowed "
            f"(allowed: {size.layers} letters F or S for {name}, the first F, as {example})"
        )
    return replace(size, index_topk_pattern=pattern)
