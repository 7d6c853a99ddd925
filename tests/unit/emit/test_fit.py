from __future__ import annotations

import json

import pytest
import torch

import dsabench
from dsabench.emit.expiry import Installed, examine, installed_at, installed_here
from dsabench.emit.fit import require_emittable
from dsabench.emit.tables import table_json, write_table
from dsabench.emit.tree import find_tree
from dsabench.errors import InputError
from dsabench.results.tuned_tables import read_table
from unit.emit.made import made_table, made_tree

GATE = {"eval": "gsm8k", "verdict": "no difference", "margin": 0.01, "difference": 0.001, "ci_low": -0.004, "n": 1319}
GAINS = {"weighted": 0.1, "least": 0.0, "median": 0.05, "effective_shapes": 4.2, "slower_shapes": 0}
HIGH = {"kind": "mha_threshold", "rule": {"form": "threshold", "max_tokens": 8192}}


def evidence(**more):
    return {"evidence": {"label": "measured", **more}}


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"runtime": "reference"}, "is for the runtime reference"),
        (evidence(label="shipped"), "nobody tuned it"),
        (evidence(label="simulated"), "--allow-simulated"),
        ({"kv_cache_dtype": "bfloat16"}, "nothing to choose"),
        (evidence(ci_low=-0.001, ci_high=0.069), "may be -0.1%: not shown to be faster"),
        (evidence(gains=GAINS | {"slower_shapes": 2}), "2 of its shapes are slower than with what is shipped"),
        (evidence(gains=GAINS | {"weighted": -0.01}), "what is shipped is -1.0%: not shown to be faster"),
        (HIGH, "accuracy unproven"),
        ({**HIGH, **evidence(gates=[GATE, {**GATE, "eval": "needle", "verdict": "inconclusive"}])}, "needle came out"),
    ],
)
def test_what_is_no_default_is_refused(changes, reason):
    with pytest.raises(InputError, match=reason):
        require_emittable(made_table(**changes), "sglang", allow_simulated=False)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        evidence(gains=GAINS),
        {**HIGH, **evidence(gates=[GATE])},
        {"kind": "mha_threshold", "rule": {"form": "threshold", "max_tokens": 2048}},
    ],
)
def test_what_is_proven_may_leave(changes):
    require_emittable(made_table(**changes), "sglang", allow_simulated=False)
    simulated = made_table(**{**changes, **evidence(label="simulated", gates=[GATE])})
    require_emittable(simulated, "sglang", allow_simulated=True)


def test_a_table_reads_back_as_written(tmp_path):
    table = made_table(**HIGH, **evidence(gates=[GATE], versions={"sglang": "0.5.16"}))
    path = write_table(tmp_path, table)
    assert path.name == "mha_threshold,H=16,topk=2048,device_name=NVIDIA_H200,kv_dtype=fp8_e4m3.json"
    assert read_table(path) == table
    assert path.read_text() == table_json(table)


def test_a_broken_table_is_one_line(tmp_path):
    path = tmp_path / "table.json"
    path.write_text(table_json(made_table()).replace('"constant"', '"quadratic"'))
    with pytest.raises(InputError) as caught:
        read_table(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "device", ["../../../etc/x", "/etc/x", "NVIDIA H200", "a\nb", "a,b", "", "N" * 101, "GPÜ", "a\0b"]
)
def test_a_device_that_could_name_another_file_is_refused(tmp_path, device):
    path = tmp_path / "table.json"
    path.write_text(table_json(made_table()).replace('"NVIDIA_H200"', json.dumps(device)))
    with pytest.raises(InputError, match="device: ") as caught:
        read_table(path)
    assert "\n" not in str(caught.value)


def test_expiry_names_every_difference():
    table = made_table(**evidence(versions={"sglang": "0.5.16", "sglang-kernel": "0.4.5", "torch": "2.11.0"}))
    here = {"sglang": "0.5.16", "sglang-kernel": "0.4.5", "torch": "2.11.0"}
    assert examine(table, Installed(here, "NVIDIA H200")) == []
    assert examine(table, Installed({**here, "sglang-kernel": "0.4.6"}, "NVIDIA H200")) == [
        "measured with sglang-kernel 0.4.5, here is 0.4.6"
    ]
    assert examine(table, Installed({"sglang": "0.5.16", "torch": "2.11.0"}, None)) == [
        "is for NVIDIA_H200, here is CPU",
        "measured with sglang-kernel 0.4.5, which is not found here",
    ]
    assert examine(made_table(**evidence()), Installed(here, "NVIDIA H200")) == [
        "does not say what it was measured with"
    ]


def test_a_table_of_the_reference_runtime_is_held_against_this_interpreter():
    versions = {"torch": torch.__version__, "reference": dsabench.__version__}
    table = made_table(runtime="reference", device="CPU", **evidence(versions=versions))
    assert examine(table, installed_here(None, None)) == []
    other = made_table(runtime="reference", device="CPU", **evidence(versions={**versions, "torch": "1.0"}))
    assert examine(other, installed_here(None, None)) == [f"measured with torch 1.0, here is {torch.__version__}"]


def test_torch_is_of_the_version_that_it_calls_itself(tmp_path):
    """Wheels of the package index say 2.11.0 in their metadata and 2.11.0+cu130 in torch.__version__, as records do."""
    package = made_tree(tmp_path)
    for name, version in {"torch": "2.11.0", "sglang_kernel": "0.4.5"}.items():
        (tmp_path / f"{name}-{version}.dist-info").mkdir()
        (tmp_path / f"{name}-{version}.dist-info" / "METADATA").write_text(f"Name: {name}\nVersion: {version}\n")
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch/version.py").write_text("debug = False\n__version__ = '2.11.0+cu130'\n")
    versions = {"sglang": "0.5.9", "sglang-kernel": "0.4.5", "torch": "2.11.0+cu130", "driver": "580"}
    here = installed_at(find_tree(package), "NVIDIA H200", "580")
    assert examine(made_table(**evidence(versions=versions)), here) == []
