"""Models, hardware and images as data."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from dsabench.errors import InputError
from dsabench.model.hardware import HARDWARE, accelerator
from dsabench.model.knobs import KNOBS
from dsabench.model.runtime import RuntimeSpec
from dsabench.model.topology import SINGLE
from dsabench.runtimes.command import Launch
from dsabench.sglang.accepts import from_table, known_versions
from dsabench.sglang.images import image_for
from dsabench.sglang.model_config import config_json, full_widths, weights_of
from dsabench.sglang.models import MODELS, WIDTHS, DsaModel, find_model, model_named, runs_on, widths_of
from dsabench.sglang.rules.resolve import default_kernels, resolve
from dsabench.sglang.rules.setting import Facts
from dsabench.sglang.rules.table import check
from dsabench.sglang.runtime import SglangRuntime
from dsabench.sglang.slice import Limits, Shape, cut
from dsabench.sglang.versions import is_release, parse_version


@pytest.mark.parametrize(
    ("hardware", "kv_cache_dtype", "version", "prefill", "decode"),
    [
        ("h200", "auto", "0.5.9", "flashmla_sparse", "fa3"),
        ("h20", "bfloat16", "0.5.23", "flashmla_sparse", "fa3"),
        ("h800", "fp8_e4m3", "0.5.10", "flashmla_auto", "flashmla_kv"),
        ("h200", "fp8_e4m3", "0.5.11", "flashmla_kv", "flashmla_kv"),
        ("b200", "bfloat16", "0.5.16", "flashmla_sparse", "trtllm"),
        ("b200", "auto", "0.5.9", "flashmla_auto", "flashmla_kv"),
        ("b200", "auto", "0.5.10", "trtllm", "trtllm"),
        ("b200", "fp8_e4m3", "0.5.23", "trtllm", "trtllm"),
        ("mi300x", "auto", "0.5.10", "tilelang", "tilelang"),
        ("mi355x", "fp8_e4m3", "0.5.20", "triton", "triton"),
    ],
)
def test_default_kernels(hardware: str, kv_cache_dtype: str, version: str, prefill: str, decode: str) -> None:
    found = default_kernels(accelerator(hardware), kv_cache_dtype, parse_version(version))
    assert found is not None
    assert (found.prefill, found.decode) == (prefill, decode)
    assert found.forced == (hardware == "b200" and version == "0.5.10")


def test_where_no_default_runs() -> None:
    assert default_kernels(accelerator("mi300x"), "auto", parse_version("0.5.9")) is None
    assert default_kernels(accelerator("npu"), "auto", parse_version("0.5.16")) is None


@pytest.mark.parametrize("version", known_versions(), ids=str)
def test_the_version_takes_its_own_defaults(version: tuple[int, int, int]) -> None:
    accepted = from_table(parse_version(str(version)))
    for device in HARDWARE.values():
        for dtype in ("bfloat16", "fp8_e4m3"):
            found = default_kernels(device, dtype, accepted.version)
            prefix = "--nsa" if "--dsa-prefill-backend" not in accepted.flags else "--dsa"
            assert found is None or found.prefill in accepted.flags[f"{prefix}-prefill-backend"].choices
            assert found is None or found.decode in accepted.flags[f"{prefix}-decode-backend"].choices


@pytest.mark.parametrize("version", known_versions(), ids=str)
def test_the_version_takes_what_models_need(version: tuple[int, int, int]) -> None:
    accepted = from_table(parse_version(str(version)))
    for model in MODELS.values():
        assert model.tool_call_parser in {None, *accepted.flags["--tool-call-parser"].choices}
        assert model.reasoning_parser in accepted.flags["--reasoning-parser"].choices
        assert model.needs.get("quantization") in {None, *accepted.flags["--quantization"].choices}


def test_models_are_found_by_name_and_path() -> None:
    assert model_named("V3.2") is find_model("deepseek-ai/DeepSeek-V3.2")
    assert find_model("zai-org/GLM-5-FP8") is model_named("glm-5")
    assert model_named("glm-5").is_glm
    assert find_model("/models/mine") is None
    with pytest.raises(InputError, match=r"v9: unknown model \(known: v3\.2-exp, "):
        model_named("v9")


def test_glm_5_in_bfloat16_is_a_checkpoint_of_its_own_and_twice_as_large() -> None:
    wide, narrow = find_model("zai-org/GLM-5"), model_named("glm-5")
    assert wide is model_named("glm-5-bf16")
    assert (wide.weights, wide.is_glm, wide.index_topk_pattern) == ("bf16", True, narrow.index_topk_pattern)
    assert wide.weights_gib == pytest.approx(2 * narrow.weights_gib, rel=0.01)


@pytest.mark.parametrize(
    "text", ["0.5.16", "v0.5.16", "0.5.16.post1", "0.5.16rc0", "0.5.16+cu130", "0.5.16.dev3+g1a2b"]
)
def test_a_version_and_its_builds(text: str) -> None:
    assert parse_version(text) == (0, 5, 16)


@pytest.mark.parametrize(
    ("asked", "installed", "same"),
    [
        ("0.5.16", "0.5.16", True),
        ("v0.5.16", "0.5.16+cu130", True),
        ("0.5.16.post1", "0.5.16.post1", True),
        ("0.5.16", "0.5.16.post1", False),
        ("0.5.16", "0.5.16rc0", False),
    ],
)
def test_post_releases_are_told_apart_and_builds_are_not(asked: str, installed: str, *, same: bool) -> None:
    assert is_release(asked, installed) is same
    with pytest.raises(InputError, match=r"write 0\.5\.16"):
        is_release("newest", installed)


@pytest.mark.parametrize("text", ["0.5", "0.5.16x", "0.5.16.1", "sglang 0.5.16", ""])
def test_what_is_no_version(text: str) -> None:
    with pytest.raises(InputError, match="no version; write"):
        parse_version(text)


def test_models_are_consistent() -> None:
    for model in MODELS.values():
        assert set(model.needs) <= set(KNOBS)
        patterns = {model.index_topk_pattern, model.widths.indexer} - {None}
        assert {len(pattern) for pattern in patterns} <= {model.widths.layers}
    assert [name for name, model in MODELS.items() if model.tool_call_parser is None] == ["v3.2-speciale"]
    assert runs_on(model_named("glm-5.2-nvfp4")) == ("b200", "b300", "gb200", "gb300", "rtx-pro-6000")
    assert runs_on(model_named("v3.2-mxfp4")) == ("mi300x", "mi325x", "mi355x")


def test_every_accelerator_has_an_image() -> None:
    images = {name: image_for(device) for name, device in HARDWARE.items()}
    assert images["mi325x"] == images["mi300x"] != images["mi355x"]
    assert images["h100"] == images["gb300"] == "lmsysorg/sglang:latest"
    assert images["npu"] == "lmsysorg/sglang:dsv32-a2"
    assert None not in images.values()


@pytest.mark.parametrize("model", MODELS.values(), ids=lambda model: model.name)
def test_a_models_config_says_its_widths_and_its_weights(model: DsaModel) -> None:
    config = config_json(model.path)
    assert config is not None
    assert weights_of(config) == model.weights
    assert replace(widths_of(config), indexer=model.widths.indexer, more=model.widths.more) == model.widths


def test_glm_5_2_shares_indexers_as_its_config_says() -> None:
    config = config_json("zai-org/GLM-5.2-FP8")
    assert config is not None
    types = config["indexer_types"]
    assert isinstance(types, list)
    assert (len(types), types.count("full")) == (78, 21)
    every, offset = config["index_topk_freq"], config["index_skip_topk_offset"]
    # 0.5.13 srt/models/deepseek_v2.py:1578: which layers reuse the last result.
    assert types == ["shared" if max(layer - offset + 1, 0) % every else "full" for layer in range(78)]


def folder(tmp_path: Path, **config: object) -> str:
    """A model's folder with a config.json."""
    (tmp_path / "config.json").write_text(json.dumps(config))
    return str(tmp_path)


def facts(model: str) -> Facts:
    spec = RuntimeSpec(kind="sglang", model=model)
    return resolve(spec, SINGLE.roles[0], parse_version("0.5.16"), accelerator("h200")).model


def test_a_folder_is_what_its_config_says(tmp_path: Path) -> None:
    quantization = {"quant_method": "modelopt", "quant_algo": "NVFP4"}
    path = folder(
        tmp_path, architectures=["GlmMoeDsaForCausalLM"], num_hidden_layers=78, num_attention_heads=64, index_topk=1024,
        quantization_config=quantization,
    )  # fmt: skip
    found = facts(path)
    assert (found.is_glm, found.layers, found.heads, found.index_topk) == (True, 78, 64, 1024)
    assert (found.weights, found.weights_gib, found.name) == ("nvfp4", None, None)
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"metadata": {"total_size": 400 * 2**30}}))
    assert facts(path).weights_gib == 400
    spec = RuntimeSpec(
        kind="sglang", model=path, hardware="h200", knobs={"tp_size": 8, "reasoning_parser": "deepseek-v3"}
    )
    rules = {finding.rule for finding in check(spec, parse_version("0.5.16"), accelerator("h200"))}
    assert {"MD01", "MD04"} <= rules


def test_a_dense_models_folder_is_no_dsa_model(tmp_path: Path) -> None:
    assert not facts(folder(tmp_path, architectures=["Qwen3ForCausalLM"], num_hidden_layers=64)).is_dsa


def test_of_a_path_that_is_not_known_nothing_is_taken_for_granted() -> None:
    found = facts("zai-org/GLM-9")
    assert (found.layers, found.heads, found.weights, found.weights_gib) == (None, None, None, None)
    spec = RuntimeSpec(kind="sglang", model="zai-org/GLM-9", knobs={"tp_size": 8})
    notes = SglangRuntime(Launch()).check((spec,), "0.5.16")[0].notes
    assert "MD05: zai-org/GLM-9 is neither a folder here nor a known model" in " ".join(note.line for note in notes)


def test_a_width_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"config\.json has no model_type, num_hidden_layers, "):
        full_widths(folder(tmp_path, architectures=["GlmMoeDsaForCausalLM"]))
    with pytest.raises(InputError, match="neither a folder"):
        full_widths("zai-org/GLM-9")


@pytest.mark.parametrize("family", WIDTHS)
def test_a_slice_stands_for_the_model_that_it_is_cut_from(tmp_path: Path, family: str) -> None:
    piece = cut(family, Shape(8, 8, 8, mtp=False), 8, Limits())
    assert full_widths(folder(tmp_path, **piece.config)) is WIDTHS[family]
