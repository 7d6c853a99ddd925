"""`--json-model-override-args`: what may be changed of a model's config. Of sglang's many keys two mean something here."""

from __future__ import annotations

import json
from dataclasses import replace

from dsabench.errors import InputError
from dsabench.reference.engine.sizes import SIZES, ModelSize

FLAG = "--json-model-override-args"
_PATTERN, _TOPK = "index_topk_pattern", "index_topk"


def model_size(name: str, overrides: str) -> ModelSize:
    """The model of that name with the JSON object merged into it.

    `index_topk` is how many tokens a query attends to. `index_topk_pattern` has a letter per layer (sglang 0.5.23
    model_config.py:506): F computes the indexer, S attends to what the nearest F before it selected. The first is F.

    Raises:
        InputError: no JSON object, an unknown key, a number below 1, or a pattern that does not fit the model.

    """
    size = SIZES[name]
    try:
        given = json.loads(overrides)
    except ValueError as error:
        raise InputError(f"{FLAG}: {overrides!r} is no JSON: {error}") from error
    if not isinstance(given, dict):
        raise InputError(f"{FLAG}: {overrides!r} is no JSON object")
    unknown = sorted(given.keys() - {_PATTERN, _TOPK})
    if unknown:
        raise InputError(f"{FLAG}: {unknown[0]}: no such key here (allowed: {_TOPK}, {_PATTERN})")
    topk = given.get(_TOPK, size.index_topk)
    if type(topk) is not int or not 1 <= topk <= size.context:
        raise InputError(f"{FLAG}: {_TOPK}: {topk!r} is not allowed (allowed: an integer, 1 to {size.context})")
    size = replace(size, index_topk=topk)
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
