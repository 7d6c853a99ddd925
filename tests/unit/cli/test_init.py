"""`init`, and `sweep --model`: a start without YAML."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dsabench.cli.main import run
from dsabench.config.load import find_mistakes, load_study

FLAGS = ("--model", "deepseek-ai/DeepSeek-V3.2", "--gpus", "8", "--ttft-p90", "3s", "--tpot-p90", "50ms")


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", "")  # no nvidia-smi: whatever this machine has, no GPU is found


def test_init_writes_a_config_and_says_how_to_run_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["init", *FLAGS, "--goal", "max-throughput-under-slo", "--out", "first.yaml"]) == 0
    out, err = capsys.readouterr()
    assert out.endswith("dsabench sweep first.yaml\n")
    assert "note: no known GPU is in this machine; planned for h200 (--hardware)" in err
    assert find_mistakes("first.yaml") == ()
    limits = {limit.metric: limit.max for limit in load_study("first.yaml").objective.constraints}
    assert limits == {"ttft_ms.p90": 3000.0, "tpot_ms.p90": 50.0}

    assert run(["init", *FLAGS, "--out", "first.yaml"]) == 2
    assert "first.yaml: exists already" in capsys.readouterr().err
    assert run(["init", "--model", "small", "--goal", "latency", "--out", "first.yaml", "--force", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["file"], told["command"]) == ("first.yaml", "dsabench sweep first.yaml")
    assert load_study("first.yaml").name == told["config"]["name"] == "small-min-latency"


def test_without_a_terminal_nothing_is_asked(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["init"]) == 2
    assert "name a model: --model" in capsys.readouterr().err
    assert list(Path().iterdir()) == []


def test_a_sweep_of_a_model_plans_without_a_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["sweep", *FLAGS, "--goal", "throughput", "--dry-run", "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert plan["constraints"][0]["metric"] == "ttft_ms.p90"
    assert plan["baseline_command"]
    assert list(Path().iterdir()) == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["sweep"], "name a config, such as `dsabench sweep local`, or a model"),
        (["sweep", "local", "--model", "small"], "name a config"),
        (["sweep", "local", "--goal", "latency"], "--goal goes with --model"),
        (["sweep", "--model", "small", "--ttft-p90", "3"], "'3' is not a latency: use 50ms or 3s"),
    ],
)
def test_what_does_not_go_together_is_one_line(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(words) == 2
    err = capsys.readouterr().err
    assert said in err
    assert err.count("\n") == 1
