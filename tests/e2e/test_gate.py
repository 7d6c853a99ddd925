"""Evals and benchmarks that share the boots of the real reference server: a sweep with a gate, and `eval --config --bench`."""

from __future__ import annotations

import json
import re
import subprocess
import sys

from dsabench.results.journal import read_journal
from studies import SHORT_EVAL, STUDY, write_study

SWEEP = """
  - axes: {prefill_backend: [flashmla_kv, flashmla_sparse]}
"""


def test_a_gate_that_four_questions_cannot_decide_is_refused_before_a_boot(tmp_path) -> None:
    (tmp_path / "short.yaml").write_text(SHORT_EVAL)
    config = write_study(tmp_path, STUDY + f"gate: {{eval: {tmp_path / 'short.yaml'}, margin: 0.01, repeat: 2}}\n")
    words = [sys.executable, "-m", "dsabench", "sweep", str(config), "--results", str(tmp_path / "r")]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "error: gate: this decides nothing: short, 4 questions × 2, margin 1 point" in done.stderr
    assert "Traceback" not in done.stderr
    assert not list((tmp_path / "r").glob("boots/*"))


def test_four_questions_that_the_default_cannot_answer_pass_no_gate(tmp_path) -> None:
    (tmp_path / "short.yaml").write_text(SHORT_EVAL)
    text = STUDY.replace(
        "\n  - axes: {prefill_backend: [flashmla_kv, flashmla_sparse], chunked_prefill_size: [128, 256]}\n", SWEEP
    )
    text = re.sub(r"  - {name: two.*\n", "", text.replace("confirm_boots: 2", "confirm_boots: 1"))
    config = write_study(tmp_path, text + f"gate: {{eval: {tmp_path / 'short.yaml'}, margin: 0.2, repeat: 2}}\n")
    words = [sys.executable, "-m", "dsabench", "sweep", str(config), "--results", str(tmp_path / "r"), "--json"]
    first = subprocess.run(words, capture_output=True, text=True, check=False)
    assert first.returncode == 1, first.stderr
    gate = json.loads(first.stdout)["gate"]
    assert (gate["verdict"], gate["unit"], gate["n_base"]) == ("inconclusive", "points", 4)
    records = read_journal(tmp_path / "r" / "journal.jsonl").records
    gated = [record for record in records if record.phase == "gate"]
    assert [record.outcome.kind for record in gated] == ["scored", "scored"]
    assert len({record.boot for record in gated}) == 2
    assert {record.boot for record in gated} == {record.boot for record in records if record.phase == "confirm"}
    assert {record.trial.runtime.knobs["prefill_backend"] for record in gated} == {"flashmla_kv", "flashmla_sparse"}
    again = subprocess.run(words, capture_output=True, text=True, check=False)
    assert again.returncode == 1
    assert json.loads(again.stdout)["gate"] == gate
    assert read_journal(tmp_path / "r" / "journal.jsonl").records == records


def test_a_benchmark_and_an_eval_share_a_boot(tmp_path) -> None:
    (tmp_path / "short.yaml").write_text(SHORT_EVAL)
    config = write_study(tmp_path)
    words = [sys.executable, "-m", "dsabench", "eval", str(tmp_path / "short.yaml"), "--config", str(config), "--bench"]
    words += ["--results", str(tmp_path / "r"), "--json"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["n"] == 4
    records = read_journal(tmp_path / "r" / "journal.jsonl").records
    assert [record.trial.kind for record in records] == ["serve", "serve", "eval"]
    assert len({record.boot for record in records}) == 1
    assert {record.outcome.kind for record in records} == {"measured", "scored"}
