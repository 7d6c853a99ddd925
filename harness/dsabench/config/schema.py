"""JSON Schema (draft 2020-12) of the YAML files: for editors, and as the list of what is allowed where."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any, Literal

from pydantic import BaseModel

from dsabench.config.document import ConfigFile, LaunchFile, SweepFile
from dsabench.config.plain import KeyPath
from dsabench.config.specs import DRIVEN, LAUNCHED, RuntimeConfig
from dsabench.model.evals import EvalSpec
from dsabench.model.metrics import METRICS, OBJECTIVES
from dsabench.model.published import PublishedRun
from dsabench.model.study import MetricLimit, Objective

Form = Literal["config", "sweep", "launch", "published", "eval"]
Schema = dict[str, Any]

FORMS: dict[Form, type[BaseModel]] = {
    "config": ConfigFile,
    "sweep": SweepFile,
    "launch": LaunchFile,
    "published": PublishedRun,
    "eval": EvalSpec,
}


@cache
def json_schema(form: Form = "config") -> Schema:
    """The schema of one kind of file. Shared between calls: not to be changed."""
    schema = FORMS[form].model_json_schema()
    definitions = schema.get("$defs", {})
    narrowed: tuple[tuple[type[BaseModel], str, Iterable[str]], ...] = (
        (Objective, "metric", OBJECTIVES),
        (MetricLimit, "metric", sorted(METRICS)),
        (RuntimeConfig, "kind", LAUNCHED if form == "launch" else DRIVEN),
    )
    for model, key, allowed in narrowed:
        if model.__name__ in definitions:
            definitions[model.__name__]["properties"][key]["enum"] = list(allowed)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def allowed_keys(form: Form, path: KeyPath) -> tuple[str, ...]:
    """The keys that a mapping at `path` may have; empty where they are free."""
    return tuple(dict.fromkeys(key for branch in _at(form, path) for key in branch.get("properties", {})))


def choices(form: Form, path: KeyPath) -> tuple[str, ...]:
    """The few texts that a value at `path` may be; empty where it is not one of few."""
    listed = (option for branch in _at(form, path) for option in (*branch.get("enum", ()), branch.get("const")))
    return tuple(option for option in listed if isinstance(option, str))


def nullable(form: Form, path: KeyPath) -> bool:
    """Whether null may stand at `path`."""
    return any(branch.get("type") == "null" for branch in _at(form, path))


def _at(form: Form, path: KeyPath) -> list[Schema]:
    root = json_schema(form)
    here = list(_branches(root, root))
    for part in path:
        steps = (_step(branch, part) for branch in here)
        here = [branch for step in steps if step is not None for branch in _branches(root, step)]
    return here


def _step(branch: Schema, part: str | int) -> Schema | None:
    inside = branch.get("items") if isinstance(part, int) else branch.get("properties", {}).get(part)
    if inside is None and isinstance(part, str):
        inside = branch.get("additionalProperties")
    return inside if isinstance(inside, dict) else None


def _branches(root: Schema, node: Schema) -> Iterator[Schema]:
    """The node itself, references followed and alternatives laid open."""
    if "$ref" in node:
        yield from _branches(root, root["$defs"][node["$ref"].removeprefix("#/$defs/")])
    for option in (*node.get("anyOf", ()), *node.get("oneOf", ())):
        yield from _branches(root, option)
    if not node.keys() & {"$ref", "anyOf", "oneOf"}:
        yield node
