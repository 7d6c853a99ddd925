from __future__ import annotations

import json

import pytest

from dsabench.errors import InputError
from dsabench.model.tuned_table import ConstantRule, GridRule, RatioRule, TunedTable, choose
from dsabench.reference.engine.sizes import SIZES
from dsabench.reference.server import tables
from dsabench.reference.server.arguments import parse
from dsabench.reference.server.resolve_settings import MHA_VARIABLE, resolve

TINY = tables.TableKey(SIZES["tiny"].heads, SIZES["tiny"].index_topk, "CPU", "fp8_e4m3")


def table(kind="flashmla_auto", rule=None, key=TINY, **changes):
    content = {
        "kind": kind,
        "runtime": "reference",
        "device": key.device,
        "heads_per_rank": key.heads_per_rank,
        "index_topk": key.index_topk,
        "kv_cache_dtype": key.kv_cache_dtype,
        "rule": rule or {"form": "constant", "kernel": "flashmla_sparse"},
        "evidence": {"label": "measured"},
    }
    return {**content, **changes}


def write(folder, content, name=None, key=TINY):
    path = folder / (name or key.file_name(content["kind"]))
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return {tables.FOLDER_VARIABLE: str(folder)}


def test_ratio_is_sglangs_rule():
    rule = RatioRule(kv_per_new_token=512)
    assert choose(rule, new_tokens=2, kv_tokens=1023) == "flashmla_sparse"
    assert choose(rule, new_tokens=2, kv_tokens=1024) == "flashmla_kv"


def test_grid_edges_are_inclusive_and_below_the_first_is_the_first():
    rule = GridRule(
        new_tokens=(16, 64),
        kv_tokens=(100, 200),
        kernels=(("flashmla_kv", "flashmla_sparse"), ("flashmla_sparse",) * 2),
    )
    assert choose(rule, new_tokens=1, kv_tokens=1) == "flashmla_kv"
    assert choose(rule, new_tokens=63, kv_tokens=199) == "flashmla_kv"
    assert choose(rule, new_tokens=63, kv_tokens=200) == "flashmla_sparse"
    assert choose(rule, new_tokens=64, kv_tokens=100) == "flashmla_sparse"
    assert choose(rule, new_tokens=9999, kv_tokens=9999) == "flashmla_sparse"


@pytest.mark.parametrize("model", SIZES)
def test_every_size_has_a_shipped_table(model):
    size = SIZES[model]
    found = tables.find("flashmla_auto", tables.TableKey(size.heads, size.index_topk, "CPU", "fp8_e4m3"), {})
    assert found is not None
    assert found.table.evidence.label == "shipped"
    assert found.path.name == found.table.file_name
    assert tables.kernel_rule(found) == RatioRule(kv_per_new_token=512)


def test_every_shipped_table_is_for_a_size():
    for path in tables.SHIPPED.iterdir():
        known = TunedTable.model_validate_json(path.read_bytes())
        assert any((s.heads, s.index_topk) == (known.heads_per_rank, known.index_topk) for s in SIZES.values())


def test_the_folder_wins_over_the_shipped_table_and_that_over_the_constant(tmp_path):
    env = write(tmp_path, table())
    found = tables.find("flashmla_auto", TINY, env)
    assert tables.kernel_rule(found) == ConstantRule(kernel="flashmla_sparse")
    elsewhere = tables.TableKey(4, 32, "NVIDIA_H200", "fp8_e4m3")
    assert tables.kernel_rule(tables.find("flashmla_auto", elsewhere, env)) == RatioRule(kv_per_new_token=512)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("{", "Invalid JSON"),
        (table(rule={"form": "ratio", "kv_per_new_token": -1}), "rule.ratio.kv_per_new_token: Input should be greater"),
        (table(surprise=1), "surprise: Extra inputs"),
        (table(rule={"form": "threshold", "max_tokens": 4}), "rule.form of a flashmla_auto table"),
        (table(index_topk=64), "its content is for reference"),
        (table(runtime="sglang"), "its content is for sglang"),
    ],
)
def test_a_malformed_table_is_one_line_with_its_path(tmp_path, content, complaint):
    env = write(tmp_path, content, name=TINY.file_name("flashmla_auto"))
    with pytest.raises(InputError) as caught:
        tables.find("flashmla_auto", TINY, env)
    assert complaint in str(caught.value)
    assert str(tmp_path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_folder_is_an_error(tmp_path):
    with pytest.raises(InputError, match="no such folder"):
        tables.find("flashmla_auto", TINY, {tables.FOLDER_VARIABLE: str(tmp_path / "nowhere")})


def test_threshold_is_environment_then_table_then_topk(tmp_path):
    args = parse(["--model", "tiny", "--kv-cache-dtype", "fp8_e4m3"])
    env = write(tmp_path, table("mha_threshold", {"form": "threshold", "max_tokens": 777}))
    assert resolve(args, {}).mha_threshold_tokens == 32
    assert resolve(args, env).mha_threshold_tokens == 777
    assert resolve(args, {**env, MHA_VARIABLE: "5"}).mha_threshold_tokens == 5
    assert resolve(parse(["--model", "tiny"]), env).mha_threshold_tokens == 32, "the table is for another KV dtype"


@pytest.mark.parametrize("value", ["-1", "many", "1.5", "", "²"])
def test_a_threshold_that_is_no_count_is_refused(value):
    with pytest.raises(InputError, match=MHA_VARIABLE):
        resolve(parse(["--model", "tiny"]), {MHA_VARIABLE: value})
