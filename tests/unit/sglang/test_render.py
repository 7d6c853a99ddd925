from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest

from dsabench.model.knobs import KNOBS, Knob
from dsabench.model.value import KnobValue
from dsabench.sglang.accepts import from_table, known_versions
from dsabench.sglang.render import Rendered, render
from dsabench.sglang.spellings import FLAGS, VARIABLES
from dsabench.sglang.versions import parse_version

LAUNCH_PAGE = (Path(__file__).parents[3] / "docs/launch.md").read_text()
CP = {"prefill_cp": True, "cp_mode": "zigzag"}
DP = {"dp_size": 8, "dp_attention": True}
MTP = {"speculative_algorithm": "EAGLE", "speculative_num_steps": 3}
HISPARSE = {"hisparse": True, "hisparse_device_buffer_size": 6144}


def at(version: str, knobs: dict[str, KnobValue], env: dict[str, str] | None = None) -> Rendered:
    return render(knobs, env or {}, from_table(parse_version(version)))


def values_of(knob: Knob) -> tuple[KnobValue, ...]:
    by_type: dict[type, tuple[KnobValue, ...]] = {bool: (True, False), int: (1,), float: (1.0,), str: ("x",)}
    return knob.choices or by_type[knob.type]


@pytest.mark.parametrize("name", KNOBS)
def test_no_version_drops_a_knob_in_silence_where_others_know_it(name: str) -> None:
    versions = [str(version) for version in known_versions()]
    rendered = [at(version, {name: value}) for version in versions for value in values_of(KNOBS[name])]
    assert any(one != Rendered((), {}, ()) for one in rendered), "neither words, nor a variable, nor a remark"


def test_every_spelling_is_one_that_some_version_takes() -> None:
    known = {flag for version in known_versions() for flag in from_table(version).flags}
    assert {flag for spellings in FLAGS.values() for one in spellings for flag in one.flags} <= known
    variables = {name for version in known_versions() for name in from_table(version).variables}
    assert {name for names in VARIABLES.values() for name in names} <= variables


@pytest.mark.parametrize(
    ("version", "knobs", "words"),
    [
        ("0.5.12", {"prefill_backend": "flashmla_kv"}, "--nsa-prefill-backend flashmla_kv"),
        ("0.5.13", {"prefill_backend": "flashmla_kv"}, "--dsa-prefill-backend flashmla_kv"),
        ("0.5.12", {"attention_backend": "dsa"}, "--attention-backend nsa"),
        ("0.5.16", {"attention_backend": "dsa"}, "--attention-backend dsa"),
        ("0.5.12", CP, "--enable-nsa-prefill-context-parallel --nsa-prefill-cp-mode in-seq-split"),
        ("0.5.13", CP, "--enable-dsa-prefill-context-parallel --dsa-prefill-cp-mode in-seq-split"),
        ("0.5.14", CP, "--enable-prefill-cp --cp-strategy zigzag"),
        ("0.5.20", DP, "--dp-size 8 --enable-dp-attention"),
        ("0.5.23", DP, "--attn-dp-size 8"),
        ("0.5.23", {"dp_size": 2}, "--dp-size 2"),
        ("0.5.13", {"cuda_graph_max_bs": 64}, "--cuda-graph-max-bs 64"),
        ("0.5.14", {"cuda_graph_max_bs": 64}, "--cuda-graph-max-bs-decode 64"),
        ("0.5.13", {"cuda_graph": False}, "--disable-cuda-graph"),
        ("0.5.14", {"cuda_graph": False}, "--cuda-graph-backend-decode disabled --cuda-graph-backend-prefill disabled"),
        ("0.5.9", {"piecewise_cuda_graph": True}, "--enable-piecewise-cuda-graph"),
        ("0.5.9", {"piecewise_cuda_graph": False}, ""),
        ("0.5.10", {"piecewise_cuda_graph": True}, ""),
        ("0.5.10", {"piecewise_cuda_graph": False}, "--disable-piecewise-cuda-graph"),
        ("0.5.20", {"piecewise_cuda_graph": False}, "--cuda-graph-backend-prefill disabled"),
        ("0.5.16", {"piecewise_cuda_graph": True}, "--cuda-graph-backend-prefill tc_piecewise"),
        ("0.5.23", {"piecewise_cuda_graph": True}, "--cuda-graph-backend-prefill breakable"),
        ("0.5.16", {"prefix_cache": False, "watchdog_timeout_s": 3600.0}, "--disable-radix-cache --watchdog-timeout 3600"),
        ("0.5.9", {"hisparse": False, "prefix_cache": True}, ""),
        ("0.5.16", {**MTP, "speculative_overlap": False},
         "--speculative-algorithm EAGLE --speculative-num-steps 3 --disable-overlap-schedule"),
    ],
)  # fmt: skip
def test_each_version_gets_its_own_words(version: str, knobs: dict[str, KnobValue], words: str) -> None:
    rendered = at(version, knobs)
    assert " ".join(rendered.words) == words
    assert rendered.env == {}
    assert rendered.remarks == ()


@pytest.mark.parametrize(
    ("version", "knobs", "env"),
    [
        ("0.5.9", {"mha_threshold_tokens": 0}, {"SGLANG_NSA_FORCE_MLA": "1"}),
        ("0.5.9", {"mha_threshold_tokens": 2048}, {}),
        ("0.5.12", {"mha_threshold_tokens": 0}, {"SGLANG_NSA_PREFILL_DENSE_ATTN_KV_LEN_THRESHOLD": "0"}),
        ("0.5.16", {"mha_threshold_tokens": 4096}, {"SGLANG_DSA_PREFILL_DENSE_ATTN_KV_LEN_THRESHOLD": "4096"}),
        ("0.5.12", {"fuse_topk": False}, {"SGLANG_NSA_FUSE_TOPK": "0"}),
        ("0.5.23", {"fuse_topk": True}, {"SGLANG_DSA_FUSE_TOPK": "1"}),
        ("0.5.9", {"pp_layer_partition": "30,31"}, {"SGLANG_PP_LAYER_PARTITION": "30,31"}),
    ],
)
def test_knobs_that_are_variables(version: str, knobs: dict[str, KnobValue], env: dict[str, str]) -> None:
    assert at(version, knobs) == Rendered((), env, ())


@pytest.mark.parametrize(
    ("version", "overlap", "env", "words"),
    [
        ("0.5.10", True, {"SGLANG_ENABLE_SPEC_V2": "1"}, []),
        ("0.5.13", False, {"SGLANG_ENABLE_SPEC_V2": "0"}, []),
        ("0.5.14", False, {}, ["--disable-overlap-schedule"]),
        ("0.5.14", True, {}, []),
    ],
)
def test_overlap_of_speculation(version: str, overlap: bool, env: dict[str, str], words: list[str]) -> None:
    rendered = at(version, {**MTP, "speculative_overlap": overlap})
    assert rendered.env == env
    assert list(rendered.words[4:]) == words


def test_json_arguments_are_put_together() -> None:
    knobs = {**HISPARSE, "hisparse_host_to_device_ratio": 10, "model_overrides": '{"num_hidden_layers": 5}'}
    words = at("0.5.12", {**knobs, "index_topk_pattern": "FFS"}).words
    said = dict(itertools.pairwise(words))
    assert json.loads(said["--hisparse-config"]) == {"device_buffer_size": 6144, "host_to_device_ratio": 10}
    assert json.loads(said["--json-model-override-args"]) == {"num_hidden_layers": 5, "index_topk_pattern": "FFS"}


@pytest.mark.parametrize(
    ("version", "knobs", "rule", "severity", "knob"),
    [
        ("0.5.9", {"hisparse": True}, "FL03", "error", "hisparse"),
        ("0.5.12", {"topk_backend": "torch"}, "VS01", "error", "topk_backend"),
        ("0.5.9", {"mha_threshold_tokens": 4096}, "VS01", "error", "mha_threshold_tokens"),
        ("0.5.16", {"cpu_threads": 2}, "VS01", "error", "cpu_threads"),
        ("0.5.23", {"device": "cuda"}, "VS01", "error", "device"),
        ("0.5.12", {"prefill_backend": "triton"}, "FL04", "error", "prefill_backend"),
        ("0.5.23", {"kv_cache_dtype": "fp4_e2m1"}, "FL04", "error", "kv_cache_dtype"),
        ("0.5.23", {"quantization": "marlin"}, "FL04", "error", "quantization"),
        ("0.5.9", {"index_topk_pattern": "FS"}, "VS02", "error", "index_topk_pattern"),
        ("0.5.12", {**HISPARSE, "hisparse_swap_in_block_size": 512}, "VS02", "error", "hisparse_swap_in_block_size"),
        ("0.5.16", {"tokens_histogram": True}, "VS03", "overwritten", "tokens_histogram"),
        ("0.5.16", {"model_overrides": "[1]"}, "VS05", "error", "model_overrides"),
        ("0.5.16", {"model_overrides": "{"}, "VS05", "error", "model_overrides"),
        ("0.5.16", {"model_overrides": '{"index_topk_pattern": "F"}', "index_topk_pattern": "S"}, "VS06", "error",
         "index_topk_pattern"),
        ("0.5.16", {**MTP, "speculative_overlap": True, "overlap_schedule": False}, "VS06", "error",
         "speculative_overlap"),
        ("0.5.16", {"speculative_num_steps": 3}, "VS07", "overwritten", "speculative_num_steps"),
        ("0.5.16", {"hisparse_device_buffer_size": 6144}, "VS07", "overwritten", "hisparse_device_buffer_size"),
        ("0.5.16", {"cp_mode": "zigzag"}, "VS07", "overwritten", "cp_mode"),
        ("0.5.16", {"dp_attention": True}, "VS07", "overwritten", "dp_attention"),
    ],
)  # fmt: skip
def test_nothing_is_dropped_in_silence(
    version: str, knobs: dict[str, KnobValue], rule: str, severity: str, knob: str
) -> None:
    (remark,) = at(version, knobs).remarks
    assert (remark.rule, remark.severity, remark.knob) == (rule, severity, knob)
    assert f"| `{remark.rule}` |" in LAUNCH_PAGE, "explained to users"
    assert "\n" not in str(remark)


@pytest.mark.parametrize(
    ("version", "name", "severity"),
    [
        ("0.5.23", "SGLANG_NSA_FUSE_TOPK", "error"),
        ("0.5.23", "SGLANG_ENABLE_SPEC_V2", "advisory"),
        ("0.5.12", "SGLANG_NSA_FUSE_TOPK", None),
        ("0.5.23", "NCCL_DEBUG", None),
    ],
)
def test_variables_that_the_version_does_not_read(version: str, name: str, severity: str | None) -> None:
    rendered = at(version, {}, {name: "1"})
    assert [(one.rule, one.severity) for one in rendered.remarks] == ([("VS04", severity)] if severity else [])
    assert rendered.env == {name: "1"}


def test_a_variable_and_a_knob_that_say_the_same_contradict_each_other() -> None:
    (remark,) = at("0.5.16", {"fuse_topk": True}, {"SGLANG_DSA_FUSE_TOPK": "0"}).remarks
    assert (remark.rule, remark.knob) == ("VS06", "SGLANG_DSA_FUSE_TOPK")


def test_equal_settings_give_equal_commands() -> None:
    knobs: dict[str, KnobValue] = {"tp_size": 8, "page_size": 64, **DP}
    assert at("0.5.16", knobs) == at("0.5.16", dict(reversed(knobs.items())))
