"""The answer of a sweep with a gate: speed and accuracy side by side, from committed records."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from dsabench.cli.main import run

EVIDENCE = Path(__file__).parents[3] / "results" / "reference-cpu"


@pytest.fixture
def concluded(tmp_path):
    shutil.copytree(EVIDENCE, tmp_path / "results", ignore=shutil.ignore_patterns("boots"))
    return ["sweep", "local", "--results", str(tmp_path / "results"), "--conclude"]


def test_a_faster_setting_is_refused_and_another_accepted(concluded, capsys) -> None:
    assert run([*concluded, "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    scores = {one["label"]: one["accuracy"].get("gsm8k-form") for one in said["candidates"]}
    assert len(scores) == 6
    fast, accepted, default = (
        scores[name]
        for name in ("mha_threshold_tokens=512 index_topk_pattern=FSSSSS", said["best"]["label"], "default")
    )
    assert default > 0.9
    assert accepted >= default - 0.05
    assert fast < 0.5
    (refused,) = said["passed_over"]
    assert refused["value"] > said["best"]["value"]
    assert {verdict["verdict"] for verdict in said["verdicts"] if verdict["metric"] == "total_throughput_tok_s"} == {
        "better"
    }


def test_the_table_has_a_column_of_scores(concluded, capsys, monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert run(concluded) == 0
    lines = capsys.readouterr().out.splitlines()
    (number,) = (number for number, line in enumerate(lines) if "vs default" in line)
    assert lines[number].split() == ["setting", "chat", "document", "vs", "default", "form", "note"]
    assert lines[number - 1].split() == ["gsm8k-"]
    table = lines[number : lines.index("", number)] if "" in lines[number:] else lines[number:]
    assert all(
        word in " ".join(table).split() for word in ("speculative_algorithm=EAGLE", "prefill_backend=flashmla_auto")
    )
    (default,) = (line for line in lines if line.startswith(" default "))
    assert default.split()[-1] == "0.985"
    assert max(len(line) for line in lines if "│" in line or "─" in line) <= 80
