"""Measure → tune → emit → serve, on real kernel times of this machine and the reference runtime."""

from __future__ import annotations

import json

import pytest

from dsabench.cli.main import run
from dsabench.emit.tables import write_table
from dsabench.model.tuned_table import ConstantRule
from dsabench.results.tuned_tables import read_table
from studies import SHORT_EVAL, STUDY, write_study
from unit.reference.server.serving import MHA, TABLES, serving

pytestmark = pytest.mark.slow

SHAPES = [f"reftiny-h4-b1-q{new}-kv{prefix + new}" for new in (8, 64, 256) for prefix in (0, 256, 1024)]
NO_DENSE = {MHA: "0"}
FP8 = ("--kv-cache-dtype", "fp8_e4m3")


@pytest.fixture
def said(capsys):
    def command(*words: object, code: int = 0) -> dict:
        assert run([*map(str, words), "--json"]) == code, capsys.readouterr().err
        return json.loads(capsys.readouterr().out)

    return command


def prefilled(folder) -> tuple[dict, dict]:
    """(what a server says it is set to, tokens by path) after one prompt, with no flag that names a backend."""
    with serving(*FP8, **NO_DENSE, **({TABLES: str(folder)} if folder else {})) as server:
        server.generate([5] * 600, new=1)
        info = server.info()
    return info, {k: v for k, v in info["reference"]["counters"]["tokens"].items() if k.startswith("prefill.")}


def test_a_table_tuned_here_is_what_a_server_without_flags_runs(tmp_path, said):
    config, kernels, tables = write_study(tmp_path), tmp_path / "kernels", tmp_path / "tables"
    bench = ["kernels", "bench", "sparse_prefill", "--shapes", ",".join(SHAPES), "--dtypes", "fp8", "--spread", "0.4"]
    said(*bench, "--candidates", "torch_flashmla_sparse,torch_flashmla_kv", "--results", kernels)
    tuned = said("tune", "flashmla-auto", config, "--kernels", kernels, "--out", tables)
    assert tuned["shapes"] >= 5
    table = read_table(next(tables.glob("*.json")))
    assert table.file_name == "flashmla_auto,H=4,topk=32,device_name=CPU,kv_dtype=fp8_e4m3.json"
    assert table.evidence.label == "measured"
    assert table.evidence.regret is not None
    assert table.evidence.samples_sha256 is not None
    assert "torch" in table.evidence.versions

    shipped, _ = prefilled(None)
    assert shipped["dsa_prefill_backend"] == "flashmla_kv"
    loaded, _ = prefilled(tables)
    assert loaded["dsa_prefill_backend"] == "flashmla_auto"
    assert loaded["reference"]["flashmla_auto_rule"] == json.loads(table.rule.model_dump_json())

    for kernel in ("flashmla_sparse", "flashmla_kv"):
        opposite = tmp_path / kernel
        write_table(opposite, table.model_copy(update={"rule": ConstantRule(kernel=kernel)}))
        _, tokens = prefilled(opposite)
        assert tokens == {f"prefill.{kernel}": 600}


def test_a_kernel_table_of_other_heads_is_refused(tmp_path, capsys):
    config = write_study(tmp_path)
    assert run(["tune", "flashmla-auto", str(config), "--kernels", str(tmp_path)]) == 2
    assert "dsabench kernels bench sparse_prefill" in capsys.readouterr().err


def test_four_questions_let_no_threshold_become_a_default(tmp_path, capsys):
    """Dense attention is faster than sparse for 600 tokens of the tiny model; whether it is as good, four questions
    cannot say, so the gate refuses, or nothing was faster."""
    (tmp_path / "short.yaml").write_text(SHORT_EVAL)
    text = STUDY.replace("prefill_backend: [flashmla_kv, flashmla_sparse], chunked_prefill_size: [128, 256]", "AXES")
    text = text.replace("AXES", "mha_threshold_tokens: [32, 1024]").replace("input_len: 48", "input_len: 600")
    text = text.replace("chunked_prefill_size: 256}", "chunked_prefill_size: 1024, mha_threshold_tokens: 32}")
    text = text.replace("output_throughput_tok_s", "total_throughput_tok_s").replace("input_len: 96", "input_len: 700")
    text = text.replace("confirm_boots: 2", "confirm_boots: 3")
    config = write_study(tmp_path, text + f"gate: {{eval: {tmp_path / 'short.yaml'}, margin: 0.2, repeat: 2}}\n")
    words = ["tune", "mha-threshold", str(config), "--results", str(tmp_path / "r"), "--out", str(tmp_path / "t")]
    code = run([*words, "--json"])
    answer = json.loads(capsys.readouterr().out)
    assert [(point["workload"], point["mha_threshold_tokens"]) for point in answer["curve"]] == [
        *(("one", 32), ("one", 1024), ("two", 32), ("two", 1024))
    ]
    assert (code, answer["standing"]) in {(1, "refused by the gate"), (0, "not faster")}
    assert answer["table"] is None
    assert not (tmp_path / "t").exists()
