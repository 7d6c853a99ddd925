"""The module that patch and plugin put into a server: it chooses as the fitted rule does, and no file makes it raise."""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from dsabench.emit.payload import dsa_tuned
from dsabench.emit.tables import write_table
from dsabench.model.tuned_table import ConstantRule, GridRule, RatioRule, choose
from dsabench.results.tuned_tables import read_table
from unit.emit.made import made_table

COMMITTED = sorted((Path(__file__).parents[3] / "results" / "h200" / "tables").glob("*.json"))
KERNELS = ("flashmla_sparse", "flashmla_kv")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The folder of tables of a server on an H200 with 16 heads a rank."""
    monkeypatch.setattr(dsa_tuned, "_device_name", lambda: "NVIDIA_H200")
    monkeypatch.setenv(dsa_tuned.FOLDER_VARIABLE, str(tmp_path))
    dsa_tuned._load.cache_clear()
    yield tmp_path
    dsa_tuned._load.cache_clear()


def chosen(new: int | None, kv: int | None, heads: int = 16) -> str | None:
    backend = SimpleNamespace(num_q_heads=heads, dsa_index_topk=2048, dsa_kv_cache_store_fp8=True)
    batch = SimpleNamespace(forward_mode=SimpleNamespace(name="EXTEND"), extend_num_tokens=new, seq_lens_sum=kv)
    return dsa_tuned.prefill_impl(backend, batch, keep=False)


def made_rules() -> list[ConstantRule | RatioRule | GridRule]:
    drawn, rules = random.Random(0), [ConstantRule(kernel=kernel) for kernel in KERNELS]
    for _ in range(20):
        ratio = RatioRule(kv_per_new_token=drawn.choice([1.5, 8, 85.703, 512]), from_new_tokens=drawn.choice([None, 7]))
        new, kv = (sorted({1, *drawn.sample(range(2, 5000), drawn.randrange(3))}) for _ in range(2))
        cells = [[drawn.choice(KERNELS) for _ in kv] for _ in new]
        grid = {"new_tokens": new, "kv_tokens": kv, "kernels": cells}
        rules += [ratio, GridRule.model_validate(grid)]
    return rules


def batches_of(rule: ConstantRule | RatioRule | GridRule) -> list[tuple[int, int]]:
    """Both sides of every edge, and the edge."""
    if isinstance(rule, RatioRule):
        new = {1, 4096, *near(rule.from_new_tokens or 1)}
        return [(n, kv) for n in new for kv in near(round(rule.kv_per_new_token * n))]
    edges = ((1,), (1,)) if isinstance(rule, ConstantRule) else (rule.new_tokens, rule.kv_tokens)
    return [(n, kv) for a in edges[0] for n in near(a) for b in edges[1] for kv in near(b)]


def near(edge: int) -> set[int]:
    return {value for value in (edge - 1, edge, edge + 1) if value > 0}


@pytest.mark.parametrize("rule", [*made_rules(), *(read_table(path).rule for path in COMMITTED)])
def test_at_every_edge_it_takes_the_kernel_of_the_fitted_rule(folder, rule):
    write_table(folder, made_table(rule=rule.model_dump()))
    batches = batches_of(rule)
    assert [chosen(*one) for one in batches] == [choose(rule, new_tokens=n, kv_tokens=kv) for n, kv in batches]
    assert len(batches) >= 4


def test_the_edge_of_a_ratio_belongs_to_flashmla_kv_and_the_least_new_tokens_to_flashmla_sparse(folder):
    write_table(folder, made_table(rule={"form": "ratio", "kv_per_new_token": 8, "from_new_tokens": 100}))
    assert [chosen(100, kv) for kv in (799, 800)] == ["flashmla_sparse", "flashmla_kv"]
    assert [chosen(new, 101) for new in (99, 100)] == ["flashmla_kv", "flashmla_sparse"]


GRID = {"form": "grid", "new_tokens": [1, 9], "kv_tokens": [1], "kernels": [["flashmla_kv"], ["flashmla_sparse"]]}
BROKEN = {
    "no JSON": b"{{",
    "not UTF-8": b"\xff\xfe",
    "a list": b"[]",
    "empty": b"{}",
    "too deep": b"[" * 100_000,
    "of a later schema": {"schema_version": 2},
    "for the reference runtime": {"runtime": "reference"},
    "of another kind": {"kind": "mha_threshold"},
    "without a rule": {"rule": None},
    "of an unknown form": {"rule": {"form": "tree"}},
    "constant without a kernel": {"rule": {"form": "constant"}},
    "an unknown kernel": {"rule": {"form": "constant", "kernel": "fa9"}},
    "a ratio in words": {"rule": {"form": "ratio", "kv_per_new_token": "8"}},
    "a ratio that is no number": {"rule": {"form": "ratio", "kv_per_new_token": float("nan")}},
    "half a new token": {"rule": {"form": "ratio", "kv_per_new_token": 8, "from_new_tokens": 0.5}},
    "no rows": {"rule": {**GRID, "kernels": []}},
    "a row too few": {"rule": {**GRID, "kernels": [["flashmla_kv"]]}},
    "an empty row": {"rule": {**GRID, "kernels": [["flashmla_kv"], []]}},
    "edges that fall": {"rule": {**GRID, "new_tokens": [9, 1]}},
    "evidence in words": {"evidence": "measured"},
    "versions in a list": {"evidence": {"label": "measured", "versions": ["0.5.16"]}},
    "no label": {"evidence": {"label": None}},
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_table_is_named_in_the_log_and_left_out(folder, name, caplog):
    change, table = BROKEN[name], made_table(rule=GRID)
    if isinstance(change, dict):
        change = json.dumps({**table.model_dump(mode="json"), **change}).encode()
    (folder / table.file_name).write_bytes(change)
    assert [chosen(10, 10), chosen(1, 10)] == [None, None]
    assert [line.message.endswith("is not used") for line in caplog.records] == [True], "once, not for every batch"


def test_no_folder_and_no_file_leave_the_runtimes_own_rule(folder, monkeypatch, caplog):
    assert chosen(10, 10) is None
    (folder / made_table().file_name).mkdir()
    dsa_tuned._load.cache_clear()
    assert chosen(10, 10) is None
    for place in ("nowhere", "a file/below", "n" * 300):
        (folder / "a file").write_text("")
        monkeypatch.setenv(dsa_tuned.FOLDER_VARIABLE, str(folder / place))
        dsa_tuned._load.cache_clear()
        assert chosen(10, 10) is None
    assert sum("no such folder" in line.message for line in caplog.records) == 3


def test_a_machine_without_cuda_keeps_what_the_runtime_does(monkeypatch):
    """The runtime sets the threshold on NPUs and XPUs too, where asking torch for a CUDA device raises."""

    def asked():
        raise AssertionError("Torch not compiled with CUDA enabled")

    cuda = SimpleNamespace(is_available=lambda: False, get_device_capability=asked, get_device_name=asked)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
    dsa_tuned._device_name.cache_clear()
    args, config = (
        SimpleNamespace(kv_cache_dtype="auto", tp_size=8, dp_size=1),
        SimpleNamespace(num_attention_heads=128),
    )
    config.index_topk = 2048
    assert dsa_tuned.dense_threshold(args, config, 2048) == 2048
    assert dsa_tuned.hisparse_config({"top_k": 2048}, args, config, accepts=()) == {"top_k": 2048}
    assert dsa_tuned.default_prefill_backend(args, config, "flashmla_kv") == "flashmla_kv"
    dsa_tuned._device_name.cache_clear()


def test_a_batch_whose_lengths_the_host_does_not_know_keeps_the_runtimes_rule(folder):
    write_table(folder, made_table())
    assert [chosen(10, None), chosen(None, 10), chosen(10, 10)] == [None, None, "flashmla_sparse"]


def test_what_hisparse_users_set_wins(folder):
    rule = {"form": "buffer", "device_buffer_size": 6144, "host_to_device_ratio": 8}
    write_table(folder, made_table("hisparse", rule))
    args = SimpleNamespace(kv_cache_dtype="fp8_e4m3", tp_size=8, dp_size=1)
    config = SimpleNamespace(num_attention_heads=128, index_topk=2048)
    accepts = ("device_buffer_size", "host_to_device_ratio")

    def settings(given: dict) -> dict:
        return dsa_tuned.hisparse_config(given, args, config, accepts=accepts)

    assert settings({}) == {"device_buffer_size": 6144, "host_to_device_ratio": 8}
    assert settings({"device_buffer_size": 4096}) == {"device_buffer_size": 4096, "host_to_device_ratio": 8}
    assert settings({"top_k": 8192}) == {"top_k": 8192}, "a buffer below it is refused by the runtime"
    assert settings({"top_k": "2048"})["top_k"] == "2048", "what is wrong with it is the runtime's to say"
