"""What all values share: frozen, strict about unknown keys, with one canonical JSON form."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, PlainSerializer

V = TypeVar("V")

KnobValue = bool | int | float | str
"""A setting. There is no None: a knob that is not set is not in the mapping, and the runtime's default holds."""


class Value(BaseModel):
    """A frozen value. Unknown keys are refused; a change makes a new value (`model_copy(update=…)`)."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True)


def _freeze(mapping: Mapping[str, V]) -> Mapping[str, V]:
    return MappingProxyType(dict(mapping))


FrozenMap = Annotated[Mapping[str, V], AfterValidator(_freeze), PlainSerializer(dict)]
"""A read-only mapping with string keys: `FrozenMap[int]`."""


def canonical_json(value: BaseModel) -> str:
    """Sorted keys, no white space, absent (None) fields left out.

    Leaving None out lets a later version add an optional field without renaming what is recorded already.
    """
    data = value.model_dump(mode="json", exclude_none=True)
    return json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def digest(text: str) -> str:
    """Lower-case hex sha256 of the UTF-8 bytes."""
    return hashlib.sha256(text.encode()).hexdigest()
