"""The base class of all values: frozen, strict about unknown keys, with one canonical JSON form."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Generator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Self, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, PlainSerializer

V = TypeVar("V")

KnobValue = bool | int | float | str
"""The value of a knob. There is no None: a knob that is not set is missing, and the runtime's default applies."""


def value_text(value: object) -> str:
    """A value as a person reads it: true and false as YAML has them."""
    return str(value).lower() if isinstance(value, bool) else str(value)


class Value(BaseModel):
    """A frozen value that refuses unknown keys. To change it, make a new one (`model_copy(update=…)`)."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True)

    def __iter__(self) -> Generator[tuple[str, Any]]:
        """The fields, without what properties have cached."""
        fields = type(self).model_fields
        yield from (item for item in super().__iter__() if item[0] in fields)

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """As pydantic has it, without what cached properties hold of the old value."""
        copied = super().model_copy(update=update, deep=deep)
        for name in copied.__dict__.keys() - type(self).model_fields.keys():
            del copied.__dict__[name]
        return copied


def _freeze(mapping: Mapping[str, V]) -> Mapping[str, V]:
    return MappingProxyType(dict(mapping))


FrozenMap = Annotated[Mapping[str, V], AfterValidator(_freeze), PlainSerializer(dict)]
"""A read-only mapping with string keys: `FrozenMap[int]`."""


def canonical_json(value: BaseModel) -> str:
    """JSON with sorted keys, without white space and without None fields.

    Because None is left out, a later version can add an optional field and all recorded ids stay the same.
    """
    data = value.model_dump(mode="json", exclude_none=True)
    return json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def digest_of_file(path: Path) -> str:
    """Lower-case hex sha256 of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def digest(text: str) -> str:
    """Lower-case hex sha256 of the UTF-8 bytes."""
    return hashlib.sha256(text.encode()).hexdigest()
