"""Models, hardware and images as data."""

from __future__ import annotations

import pytest

from dsabench.errors import InputError
from dsabench.model.hardware import HARDWARE, accelerator
from dsabench.model.knobs import KNOBS
from dsabench.sglang.accepts import from_table, known_versions
from dsabench.sglang.default_kernels import default_kernels
from dsabench.sglang.images import image_for
from dsabench.sglang.models import MODELS, find_model, model_named, runs_on
from dsabench.sglang.rules.resolve import WEIGHTS_GIB
from dsabench.sglang.versions import parse_version


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
    assert WEIGHTS_GIB[wide.name] == pytest.approx(2 * WEIGHTS_GIB[narrow.name], rel=0.01)


@pytest.mark.parametrize(
    "text", ["0.5.16", "v0.5.16", "0.5.16.post1", "0.5.16rc0", "0.5.16+cu130", "0.5.16.dev3+g1a2b"]
)
def test_a_version_and_its_builds(text: str) -> None:
    assert parse_version(text) == (0, 5, 16)


@pytest.mark.parametrize("text", ["0.5", "0.5.16x", "0.5.16.1", "sglang 0.5.16", ""])
def test_what_is_no_version(text: str) -> None:
    with pytest.raises(InputError, match="no version; write"):
        parse_version(text)


def test_every_model_has_a_size() -> None:
    assert WEIGHTS_GIB.keys() == MODELS.keys()


def test_models_are_consistent() -> None:
    for model in MODELS.values():
        assert set(model.hardware) <= set(HARDWARE)
        assert set(model.needs) <= set(KNOBS)
        assert model.index_topk_pattern is None or len(model.index_topk_pattern) == model.layers
    assert [name for name, model in MODELS.items() if model.tool_call_parser is None] == ["v3.2-speciale"]
    assert not runs_on(model_named("v3.2-nvfp4"), accelerator("h200"))
    assert runs_on(model_named("v3.2-mxfp4"), accelerator("mi355x"))


def test_every_accelerator_has_an_image() -> None:
    images = {name: image_for(device) for name, device in HARDWARE.items()}
    assert images["mi325x"] == images["mi300x"] != images["mi355x"]
    assert images["h100"] == images["gb300"] == "lmsysorg/sglang:latest"
    assert images["npu"] == "lmsysorg/sglang:dsv32-a2"
    assert None not in images.values()
