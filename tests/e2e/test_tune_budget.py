"""`tune` with sweep's options: a budget that ends within the confirmation, the plan, and a conclusion from records alone."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from dsabench.cli.main import run
from dsabench.results.tuned_tables import read_table
from sglang_server import install_server

ROOT = Path(__file__).parents[2]
THRESHOLD = """
name: study
runtime:
  kind: reference
  model: tiny
  base: {mha_threshold_tokens: 32, chunked_prefill_size: 1024, prefix_cache: false}
  ready_timeout_s: 60
workloads:
  - {name: one, dataset: random-ids, input_len: 600, output_len: 1, num_prompts: 12, max_concurrency: 1}
sweeps:
  - axes: {mha_threshold_tokens: [32, 1024]}
proposer: {kind: grid}
objective: {metric: total_throughput_tok_s, direction: maximize}
budget: {max_trials: 2, confirm_boots: 8}
"""
# HiSparse is faster than off, and faster still than as it is shipped, whatever the machine does meanwhile.
SCRIPT = """
SHIPPED = {"device_buffer_size": 4096, "host_to_device_ratio": 2, "swap_in_block_size": 960}

def pause_s(settings):
    if not settings.get("enable_hisparse"):
        return 0.03
    return 0.01 if settings["hisparse_config"] == SHIPPED else 0.003

def answer(settings, prompt):
    return ""
"""


def dsabench(folder: Path, *words: object, code: int = 0) -> str:
    """What it printed to stdout."""
    env = {**os.environ, "XDG_CACHE_HOME": str(folder / "cache"), "COLUMNS": "200"}
    command = [sys.executable, "-m", "dsabench", *map(str, words)]
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == code, done.stderr
    return done.stdout


@pytest.fixture
def told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """The same within this process, for what measures nothing."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "200")

    def command(*words: object, code: int = 0) -> str:
        capsys.readouterr()
        assert run([*map(str, words)]) == code, capsys.readouterr().err
        return capsys.readouterr().out

    return command


def write(folder: Path, change: Callable[[str], str] = lambda text: text) -> Path:
    (folder / "study.yaml").write_text(change(THRESHOLD))
    return folder / "study.yaml"


def lines(folder: Path) -> list[str]:
    return (folder / "r" / "journal.jsonl").read_text().splitlines()


@pytest.mark.slow
def test_a_budget_that_ends_in_the_confirmation_gives_a_verdict_and_what_is_left(
    tmp_path: Path, told: Callable[..., str]
) -> None:
    config = write(tmp_path, lambda text: text.replace("confirm_boots: 8", "confirm_boots: 0"))
    tune = ("tune", "mha-threshold", config, "--results", tmp_path / "r", "--out", tmp_path / "t")
    searched = json.loads(dsabench(tmp_path, *tune, "--json"))
    assert (searched["standing"], searched["left"]["boots"], searched["go_on"]) == ("not faster", 0, None)

    write(tmp_path)
    for _ in range(9):  # a run that waits for another one's cores has its time go by
        cut = json.loads(dsabench(tmp_path, *tune, "--budget", "8s", "--json"))
        if (confirmed := cut["measured_now"]) > 0:
            break
    assert 0 < confirmed < 16
    assert cut["stopped"] == "the confirmation was cut short: the time is up (8 s)"
    assert (cut["standing"], cut["table"], cut["unconfirmed_boots"]) == ("unfinished", None, 16 - confirmed)
    assert cut["reason"] == f"{16 - confirmed} boots of the confirmation missing: a table takes 8 of every side"
    (verdict,) = cut["verdicts"]
    assert verdict["n_base"] + verdict["n_candidate"] == confirmed - confirmed % 2, (
        "a boot without a partner is left out"
    )
    assert cut["left"]["boots"] == 16 - confirmed
    assert cut["go_on"] == (
        f"dsabench tune mha-threshold {config} --results {tmp_path}/r --budget 8s --json --out {tmp_path}/t"
    )

    concluded = told(*tune, "--conclude")
    assert "Verdict from existing records of" in concluded
    assert f"Left: {16 - confirmed} boots, {16 - confirmed} trials, about" in concluded
    assert not (tmp_path / "t").exists()

    # No boot fits into so little time.
    before = lines(tmp_path)
    short = json.loads(told(*tune, "--budget", "0.01s", "--json"))
    assert (short["measured_now"], short["verdicts"], lines(tmp_path)) == (0, cut["verdicts"], before)
    assert "--budget" in short["go_on"]
    assert "0.01s" not in short["go_on"], "the same again would do nothing again"


@pytest.mark.slow
def test_a_conclusion_from_records_alone_is_that_of_the_run(tmp_path: Path, told: Callable[..., str]) -> None:
    config = write(tmp_path, lambda text: text.replace("confirm_boots: 8", "confirm_boots: 2"))
    tune = ("tune", "mha-threshold", config, "--results", tmp_path / "r")
    ran = json.loads(dsabench(tmp_path, *tune, "--out", tmp_path / "t", "--json"))
    assert (ran["measured_now"], ran["left"]["boots"], ran["unconfirmed_boots"]) == (6, 0, 0)
    assert ran["standing"] in {"accuracy unproven", "not faster"}
    before = lines(tmp_path)

    # Elsewhere: there is no such interpreter, so whoever asked for the runtime would fail.
    write(tmp_path, lambda text: text.replace("confirm_boots: 8", "confirm_boots: 2").replace(
        "model: tiny", "model: tiny\n  launch: {python: /no/such/python}"))  # fmt: skip
    told(*tune, code=2)
    concluded = json.loads(told(*tune, "--out", tmp_path / "u", "--conclude", "--json"))
    assert lines(tmp_path) == before
    for name in ("standing", "reason", "verdicts", "curve", "environment", "left"):
        assert concluded[name] == ran[name], name
    tables = [sorted((tmp_path / name).glob("*.json")) for name in ("t", "u")]
    assert [[path.read_bytes() for path in of_one] for of_one in tables[:1]] == [
        [path.read_bytes() for path in of_one] for of_one in tables[1:]
    ]
    assert bool(tables[0]) is (ran["standing"] == "accuracy unproven")
    swept = json.loads(told("sweep", config, "--results", tmp_path / "r", "--conclude", "--json"))
    assert swept["verdicts"] == ran["verdicts"]

    # Without the last boot of each side the same records are an unfinished study.
    (tmp_path / "r" / "journal.jsonl").write_text("\n".join(before[:-1]) + "\n")
    shutil.rmtree(tmp_path / "u", ignore_errors=True)
    cut = json.loads(told(*tune, "--out", tmp_path / "u", "--conclude", "--json"))
    assert (cut["standing"], cut["left"]["boots"], cut["table"]) == ("unfinished", 1, None)
    assert not (tmp_path / "u").exists()


def test_without_records_there_is_nothing_to_conclude(tmp_path: Path) -> None:
    config = write(tmp_path)
    words = [sys.executable, "-m", "dsabench", "tune", "mha-threshold", str(config), "--results", str(tmp_path / "r")]
    for flags, said in (
        (["--conclude"], "no record of the study study to conclude from"),
        (["--conclude", "--again"], "--conclude and --again exclude each other: --conclude uses only existing records"),
    ):
        done = subprocess.run([*words, *flags], capture_output=True, text=True, timeout=60, check=False)
        assert (done.returncode, done.stderr.count("\n")) == (2, 1)
        assert said in done.stderr
    assert not (tmp_path / "r").exists()


def hisparse_study(folder: Path) -> Path:
    """The shipped study with a stand-in for sglang and a short load."""
    study = yaml.safe_load((ROOT / "configs" / "h200-hisparse.yaml").read_text())
    (folder / "script.py").write_text(SCRIPT)
    env = {"PYTHONPATH": str(install_server(folder / "site")), "STAND_IN_SCRIPT": str(folder / "script.py")}
    study["runtime"]["launch"] = {"python": sys.executable, "env": {**env, "STAND_IN_BOOT_S": "0"}}
    study["workloads"][0] |= {"input_len": 32, "output_len": 8, "num_prompts": 8, "max_concurrency": 2}
    study["budget"] |= {"max_trials": 4, "confirm_boots": 3}
    study["objective"]["constraints"] = []
    (folder / "study.yaml").write_text(yaml.safe_dump(study))
    return folder / "study.yaml"


@pytest.mark.slow
def test_hisparse_takes_the_same_options_and_concludes_alike(tmp_path: Path, told: Callable[..., str]) -> None:
    config = hisparse_study(tmp_path)
    tune = ("tune", "hisparse", config, "--results", tmp_path / "r", "--out", tmp_path / "t", "--host-memory-gib", "64")
    plan = json.loads(told(*tune, "--max-trials", "3", "--dry-run", "--json"))
    assert (plan["boots"], plan["left"]["boots"], plan["table"]) == (3 + 12, 15, None)
    assert plan["arithmetic"]
    assert plan["estimated_s"] > 0
    assert "default, settings of `first` and best in turns" in told(*tune, "--dry-run")

    ran = json.loads(dsabench(tmp_path, *tune, "--max-trials", "4", "--json"))
    sides = 2 + len(ran["rivals"])  # what was listed may be the best
    assert (ran["measured_now"], ran["left"]["boots"]) == (4 + 3 * sides, 0), ran["stopped"]
    assert ran["standing"].startswith("faster; simulated"), ran["standing"]
    table = read_table(Path(ran["table"]))
    assert table.evidence.command == f"dsabench tune hisparse {config} --max-trials 4 --host-memory-gib 64.0"

    # What a rank may use of this machine's memory decides nothing about what was measured elsewhere.
    alone = (*tune[:-2], "--max-trials", "4", "--conclude", "--json")
    concluded = json.loads(told(*alone))
    assert [concluded[name] for name in ("standing", "verdicts", "rivals")] == [
        ran[name] for name in ("standing", "verdicts", "rivals")
    ]
    assert read_table(Path(concluded["table"])).rule == table.rule

    (tmp_path / "r" / "journal.jsonl").write_text("\n".join(lines(tmp_path)[:-3]) + "\n")
    cut = json.loads(told(*alone))
    assert cut["standing"] == "unfinished: 3 boots of the confirmation missing: a table takes 3 of every side"
    assert (cut["table"], cut["left"]["boots"]) == (None, 3)
    assert cut["verdicts"]
    assert cut["go_on"].startswith(f"dsabench tune hisparse {config} --results")
