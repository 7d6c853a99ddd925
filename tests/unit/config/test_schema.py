from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest

from dsabench import rooms
from dsabench.config.files import Form, json_schema
from dsabench.config.yaml_file import parse_yaml, read_yaml
from dsabench.model.knobs import KNOBS, ROLES
from dsabench.model.metrics import METRICS, OBJECTIVES

from .conftest import MINIMAL


def validator(form: Form) -> jsonschema.Draft202012Validator:
    return jsonschema.Draft202012Validator(json_schema(form))


def plain(text: str) -> dict[str, Any]:
    return json.loads(json.dumps(dict(parse_yaml(text.encode(), "f.yaml").data)))


@pytest.mark.parametrize("form", ["config", "sweep"])
def test_is_valid_and_names_its_draft(form: Form) -> None:
    schema = json_schema(form)
    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"


@pytest.mark.parametrize(("room", "form"), [("configs", "config"), ("sweeps", "sweep")])
def test_accepts_every_shipped_file(room: str, form: Form) -> None:
    for folder in rooms.folders(room):
        for file in folder.glob("*.yaml"):
            validator(form).validate(json.loads(json.dumps(dict(read_yaml(file).data))))


def test_every_knob_has_its_meaning_and_choices() -> None:
    settings = json_schema()["$defs"]["KnobSettings"]["properties"]
    assert settings.keys() - {"args", *ROLES} == KNOBS.keys()
    for name, knob in KNOBS.items():
        assert settings[name]["description"] == knob.meaning
        assert tuple(settings[name].get("enum", ())) == knob.choices


def test_every_key_of_a_config_is_described() -> None:
    schema = json_schema()
    described = [*schema["properties"].items(), *schema["$defs"]["RuntimeConfig"]["properties"].items()]
    assert [name for name, one in described if "description" not in one] == []
    assert schema["$defs"]["Objective"]["properties"]["metric"]["enum"] == list(OBJECTIVES)
    assert schema["$defs"]["MetricLimit"]["properties"]["metric"]["enum"] == sorted(METRICS)


@pytest.mark.parametrize(
    "change",
    [
        "name: a/b",
        "runtime: {kind: refrence, model: tiny}",
        "runtime: {kind: reference}",
        "runtime: {kind: reference, model: tiny, base: {kv_cache_dtype: bf16}}",
        "runtime: {kind: reference, model: tiny, base: {prefil_backend: flashmla_kv}}",
        "runtime: {kind: reference, model: tiny, base: {cpu_threads: '1'}}",
        "workloads: []",
        "workloads: [{name: w, dataset: random-ids, input_len: 0, output_len: 4, num_prompts: 2}]",
        "sweeps: [3]",
        "sweeps: [{axes: {dtype: []}}]",
        "sweeps: [{axes: {dtype: [flot]}}]",
        "sweeps: [{when: {}}]",
        "proposer: {kind: gird}",
        "objective: {metric: speed, direction: maximize}",
        "objective: {metric: ttft_ms.p50, direction: up}",
        "budget: {max_boots: 0}",
        "budgt: {}",
    ],
)
def test_refuses_what_the_loader_refuses(change: str) -> None:
    data = plain(MINIMAL)
    validator("config").validate(data)
    assert not validator("config").is_valid(data | plain(change))
