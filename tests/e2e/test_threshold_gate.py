"""The dense attention threshold on the reference runtime: dense is faster, and the gate decides by answers that were given."""

from __future__ import annotations

import json

import pytest

from dsabench.cli.main import run
from dsabench.config.load import load_study
from dsabench.errors import InputError
from dsabench.results.journal import read_journal
from dsabench.results.tuned_tables import read_table
from unit.reference.server.serving import TABLES, serving

pytestmark = pytest.mark.slow

# Dense takes half the time of flashmla_kv for 300 tokens. Others use the cores for seconds at a time, longer than a run that a test
# can afford: a boot is hit as a whole and is half as fast. Short runs in many boots stand that; few longer ones do not (beside a busy
# loop that comes and goes 5 of 28 pairs had ratios of 1.0 to 1.25, the others of up to 3.9).
STUDY = """
name: study
runtime:
  kind: reference
  model: small
  base:
    kv_cache_dtype: fp8_e4m3
    prefill_backend: flashmla_kv
    mha_threshold_tokens: 128
    chunked_prefill_size: 4096
    prefix_cache: false
  ready_timeout_s: 60
workloads:
  - {name: p300, dataset: random-ids, input_len: 300, output_len: 1, num_prompts: 12, max_concurrency: 1}
sweeps:
  - axes: {mha_threshold_tokens: [128, 640]}
proposer: {kind: grid}
objective: {metric: total_throughput_tok_s, direction: maximize}
budget: {max_trials: 2, confirm_boots: 9}
"""
# Of the default's answers to the 24 questions dense attention changes some, far fewer than seven in ten.
EVAL = """
name: short
harness_id: test-short
about: short retrieval
reader: needle
dataset: {licence: Apache-2.0}
prompt: {endpoint: completions, template: "{text}\\nThe access code of the {colour} {place}:"}
sampling: {temperature: 0.0, top_p: 1.0, max_tokens: 4}
scorer: code
concurrency: 1
needle: {words: [7, 65], depths: [0.0, 0.5, 1.0], per_cell: 4, distractors: 0, seed: 1}
"""


def tune(folder, capsys, margin: float) -> tuple[int, dict]:
    (folder / "short.yaml").write_text(EVAL)
    gate = f"gate: {{eval: {folder / 'short.yaml'}, measure: agreement, margin: {margin}, repeat: 2}}\n"
    (folder / "study.yaml").write_text(STUDY + gate)
    words = ["tune", "mha-threshold", str(folder / "study.yaml"), "--results", str(folder / "r"), "--json"]
    code = run([*words, "--out", str(folder / "t")])
    return code, json.loads(capsys.readouterr().out)


@pytest.mark.timeout(240)  # where others keep both cores busy a boot takes thrice as long
def test_the_gate_refuses_what_one_point_does_not_allow_and_lets_pass_what_seventy_do(tmp_path, capsys) -> None:
    code, said = tune(tmp_path, capsys, 0.01)
    assert (code, said["standing"], said["table"]) == (1, "refused by the gate", None), said
    (gate,) = said["gates"]
    assert (gate["metric"], gate["verdict"], gate["n_base"]) == ("agreement", "worse", 24)
    assert "the default itself 100.0%" in gate["reason"]
    assert [(one["metric"], one["verdict"]) for one in said["verdicts"]] == [("total_throughput_tok_s", "better")]
    assert not (tmp_path / "t").exists()
    measured = read_journal(tmp_path / "r" / "journal.jsonl").records

    # What was answered stands in the journal: another margin is another verdict on it, and nothing is measured again.
    code, said = tune(tmp_path, capsys, 0.7)
    assert (code, said["standing"], said["gates"][0]["effect"]) == (0, "default", gate["effect"]), said
    assert read_journal(tmp_path / "r" / "journal.jsonl").records == measured
    (path,) = (tmp_path / "t").glob("*.json")
    table = read_table(path)
    assert (table.file_name, table.rule.max_tokens) == (path.name, 640)
    (evidence,) = table.evidence.gates
    assert (evidence.measure, evidence.margin, evidence.difference) == ("agreement", 0.7, gate["effect"])

    with serving("--kv-cache-dtype", "fp8_e4m3", model="small", **{TABLES: str(tmp_path / "t")}) as server:
        server.generate([5] * 300, new=1)
        tokens = server.counters()["tokens"]
    assert {name: count for name, count in tokens.items() if name.startswith("prefill.")} == {"prefill.dense_mha": 300}


def test_agreement_with_a_single_pass_is_refused_in_the_config(tmp_path) -> None:
    (tmp_path / "study.yaml").write_text(STUDY + "gate: {eval: needle, measure: agreement, repeat: 1}\n")
    with pytest.raises(InputError, match="repeat 2 or more"):
        load_study(tmp_path / "study.yaml")
