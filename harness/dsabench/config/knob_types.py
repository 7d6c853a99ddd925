"""Pydantic types of knob mappings. Each knob has its own type, so an error names one key.

Validation is strict and in JSON mode: text is no number, 1 is no boolean, 1.0 is no integer. Below `args` stand
arguments of the runtime that are no knobs; a loaded mapping has them as `args.NAME` beside the knobs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, ConfigDict, Field, GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema
from typing_extensions import TypedDict

from dsabench.model.knobs import KNOBS, ROLES, Knob
from dsabench.model.secrets import BEHAVIOUR_PREFIX, looks_secret
from dsabench.model.value import KnobValue, V

Form = Literal["value", "values", "conditions"]
_GROUPS = ("args", *ROLES)
_ARGUMENT = re.compile("[a-z][a-z0-9_]*")


def _setting(knob: Knob) -> Any:
    if knob.choices:
        return Literal[knob.choices]
    if knob.minimum is None:
        return knob.type
    return Annotated[knob.type, Field(ge=knob.minimum, le=knob.maximum)]


def _argument(value: object) -> KnobValue:
    """The value of an argument: of a list its words, as the command line has them."""
    if isinstance(value, list) and value and all(isinstance(word, bool | int | float | str) for word in value):
        return " ".join(map(str, value))
    if isinstance(value, bool | int | float | str):
        return value
    raise ValueError("must be true, false, a number, text or a list of them")


def _argument_names(named: Mapping[str, V]) -> Mapping[str, V]:
    for name in named:
        if not _ARGUMENT.fullmatch(name):
            raise ValueError(f"{name}: write the flag without its dashes and with _ for each - inside")
        if looks_secret(BEHAVIOUR_PREFIX + name):
            raise ValueError(f"{name} looks like a secret, and arguments are recorded; give it as a variable")
    return named


def _distinct(values: tuple[KnobValue, ...]) -> tuple[KnobValue, ...]:
    if len({(type(value), value) for value in values}) < len(values):
        raise ValueError("the same value stands twice")
    return values


def _values(setting: Any) -> Any:
    return Annotated[tuple[setting, ...], Field(min_length=1), AfterValidator(_distinct)]


@dataclass(frozen=True, slots=True)
class _KnobMapping:
    """Annotation: a mapping with every knob as an optional key."""

    title: str
    form: Form

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(
            _flat,
            handler.generate_schema(_keys(self.title, self.form)),
            serialization=core_schema.plain_serializer_function_ser_schema(nested),
        )


def _flat(given: Mapping[str, Any]) -> Mapping[str, Any]:
    flat: dict[str, Any] = {name: value for name, value in given.items() if name not in _GROUPS}
    for group in _GROUPS:
        flat |= {f"{group}.{name}": value for name, value in given.get(group, {}).items()}
    return MappingProxyType(flat)


def nested(knobs: Mapping[str, V]) -> dict[str, V | dict[str, V]]:
    """As a file has them: the arguments below `args`, what one role has below its name."""
    found: dict[str, V | dict[str, V]] = {}
    for name, value in knobs.items():
        group, _, inner = name.partition(".")
        if inner and group in _GROUPS:
            of_group = found.setdefault(group, {})
            assert isinstance(of_group, dict)
            of_group[inner] = value
        else:
            found[name] = value
    return found


@cache
def _keys(title: str, form: Form) -> Any:
    """One type for all uses, so that pydantic describes it once. Conditions contain settings for each of the knobs."""
    annotations = {
        knob.name: Annotated[_of(_setting(knob), form), Field(description=knob.meaning)] for knob in KNOBS.values()
    }
    of_argument = _of(Annotated[Any, AfterValidator(_argument)], form)
    arguments = Annotated[dict[str, of_argument], AfterValidator(_argument_names)]  # type: ignore[valid-type]
    of_role = _closed(f"{title}OfRole", dict(annotations))
    annotations["args"] = Annotated[arguments, Field(description="arguments of the runtime that are no knobs")]
    for role in ROLES:
        annotations[role] = Annotated[of_role, Field(description=f"settings of the {role} servers alone")]
    return _closed(title, annotations)


def _closed(title: str, annotations: dict[str, Any]) -> Any:
    keys = TypedDict(title, annotations, total=False)  # type: ignore[misc]
    keys.__pydantic_config__ = ConfigDict(extra="forbid", allow_inf_nan=False)  # type: ignore[attr-defined]
    return keys


def _of(setting: Any, form: Form) -> Any:
    if form == "conditions":
        return Annotated[KnobSettings, Field(min_length=1)]
    return setting if form == "value" else _values(setting)


KnobSettings = Annotated[Mapping[str, KnobValue], _KnobMapping("KnobSettings", "value")]
"""Knob → value."""

KnobAxes = Annotated[Mapping[str, tuple[KnobValue, ...]], _KnobMapping("KnobAxes", "values")]
"""Knob → the values to try."""

KnobConditions = Annotated[Mapping[str, Mapping[str, KnobValue]], _KnobMapping("KnobConditions", "conditions")]
"""Knob → the settings under which its axis is active."""
