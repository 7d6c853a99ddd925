"""Pydantic types of knob mappings. Each knob has its own type, so an error names one key.

Validation is strict and in JSON mode: text is no number, 1 is no boolean, 1.0 is no integer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, ConfigDict, Field, GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema
from typing_extensions import TypedDict

from dsabench.model.knobs import KNOBS, Knob
from dsabench.model.value import KnobValue

Form = Literal["value", "values", "conditions"]


def _setting(knob: Knob) -> Any:
    if knob.choices:
        return Literal[knob.choices]
    if knob.minimum is None:
        return knob.type
    return Annotated[knob.type, Field(ge=knob.minimum, le=knob.maximum)]


def _distinct(values: tuple[KnobValue, ...]) -> tuple[KnobValue, ...]:
    if len({(type(value), value) for value in values}) < len(values):
        raise ValueError("the same value stands twice")
    return values


def _values(knob: Knob) -> Any:
    return Annotated[tuple[_setting(knob), ...], Field(min_length=1), AfterValidator(_distinct)]  # type: ignore[misc]


@dataclass(frozen=True, slots=True)
class _KnobMapping:
    """Annotation: a mapping with every knob as an optional key."""

    title: str
    form: Form

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(
            MappingProxyType,
            handler.generate_schema(_keys(self.title, self.form)),
            serialization=core_schema.plain_serializer_function_ser_schema(dict),
        )


@cache
def _keys(title: str, form: Form) -> Any:
    """One type for all uses, so that pydantic describes it once. Conditions contain settings for each of the knobs."""
    annotations = {knob.name: Annotated[_of(knob, form), Field(description=knob.meaning)] for knob in KNOBS.values()}
    keys = TypedDict(title, annotations, total=False)  # type: ignore[misc]
    keys.__pydantic_config__ = ConfigDict(extra="forbid", allow_inf_nan=False)  # type: ignore[attr-defined]
    return keys


def _of(knob: Knob, form: Form) -> Any:
    if form == "conditions":
        return Annotated[KnobSettings, Field(min_length=1)]
    return _setting(knob) if form == "value" else _values(knob)


KnobSettings = Annotated[Mapping[str, KnobValue], _KnobMapping("KnobSettings", "value")]
"""Knob → value."""

KnobAxes = Annotated[Mapping[str, tuple[KnobValue, ...]], _KnobMapping("KnobAxes", "values")]
"""Knob → the values to try."""

KnobConditions = Annotated[Mapping[str, Mapping[str, KnobValue]], _KnobMapping("KnobConditions", "conditions")]
"""Knob → the settings under which its axis is active."""
