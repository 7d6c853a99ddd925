"""Sweeps with a gate from end to end: a stand-in for sglang whose settings differ in speed and in how often they are right."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from dsabench.results.journal import read_journal
from eval_cases import write_gsm8k
from sglang_server import install_server

ROOT = Path(__file__).parents[2]
# Larger chunks and the sparse kernel are faster; the sparse kernel gives WRONG more of the first answers wrongly.
SCRIPT = """
import json, time
right = {{row["question"]: row["answer"] for row in map(json.loads, open({data!r}))}}
order = list(right)
WRONG, WRONG_IF_HARD, DELAY_S = {wrong}, {wrong_if_hard}, {delay_s}

def is_sparse(settings):
    return settings["dsa_prefill_backend"] == "flashmla_sparse"

def pause_s(settings):
    return 0.016 / (1 + 2 * is_sparse(settings)) / (2 if settings["chunked_prefill_size"] == 4096 else 1)

def answer(settings, prompt):
    time.sleep(DELAY_S)
    asked = prompt.rpartition("Question: ")[2].removesuffix("Answer:").strip()
    place = order.index(asked) if asked in right else 0
    wrong = WRONG_IF_HARD if prompt.startswith("Hard") else WRONG
    return "0" if place < 10 + wrong * is_sparse(settings) else right[asked]
"""
EVAL = """
name: sums
harness_id: test-sums
about: sums
reader: gsm8k
dataset: {url: "http://127.0.0.1:9/no", file: sums.jsonl, licence: MIT}
prompt: {endpoint: completions, template: "{shots}Question: {question}\nAnswer:", shots: 0, asks_the_shots: true}
sampling: {temperature: 0.0, top_p: 1.0, max_tokens: 16}
scorer: last-integer
concurrency: 16
"""


class Study:
    """A config with its data, and the sweep as a process of its own."""

    def __init__(
        self, folder: Path, *, wrong: int, chunks: tuple[int, ...] = (1024,), questions: int | None = None,
        delay_s: float = 0.0, wrong_if_hard: int | None = None, ask: str = "finalists",
    ) -> None:  # fmt: skip
        self.folder, data = folder, folder / "sums.jsonl"
        write_gsm8k(data)
        (folder / "sums.yaml").write_text(EVAL + (f"num_examples: {questions}\n" if questions else ""))
        (folder / "script.py").write_text(
            SCRIPT.format(data=str(data), wrong=wrong, wrong_if_hard=wrong_if_hard or 0, delay_s=delay_s)
        )
        study = yaml.safe_load((ROOT / "configs" / "h200-slice.yaml").read_text())
        env = {"PYTHONPATH": str(install_server(folder / "site")), "STAND_IN_SCRIPT": str(folder / "script.py")}
        study["runtime"]["launch"] = {"python": sys.executable, "env": {**env, "STAND_IN_BOOT_S": "0"}}
        load = {"name": "w", "dataset": "random-ids", "input_len": 32, "output_len": 4, "num_prompts": 8}
        study |= {"workloads": [{**load, "max_concurrency": 4}], "first": [], "budget": {"confirm_boots": 1}}
        axes = {"prefill_backend": ["flashmla_kv", "flashmla_sparse"], "chunked_prefill_size": list(chunks)}
        forbid = [{"prefill_backend": "flashmla_sparse", "chunked_prefill_size": 1024}] if len(chunks) > 1 else []
        study |= {
            "sweeps": [{"axes": axes, "forbid": forbid}],
            "objective": {"metric": "total_throughput_tok_s", "direction": "maximize"},
        }
        study["gate"] = {"eval": str(folder / "sums.yaml"), "data": str(data), "margin": 0.01, "repeat": 1, "ask": ask}
        if wrong_if_hard is not None:
            hard = EVAL.replace("{shots}Question", "Hard {shots}Question").replace("name: sums", "name: hard-sums")
            (folder / "hard-sums.yaml").write_text(hard.replace("test-sums", "test-hard-sums"))
            study["gate"] = [study["gate"], {**study["gate"], "eval": str(folder / "hard-sums.yaml"), "margin": 0.02}]
        (folder / "study.yaml").write_text(yaml.safe_dump(study))

    def start(self) -> subprocess.Popen[str]:
        env = {**os.environ, "XDG_CACHE_HOME": str(self.folder / "cache")}
        words = ["sweep", str(self.folder / "study.yaml"), "--results", str(self.folder / "out"), "--json"]
        return subprocess.Popen(
            [sys.executable, "-m", "dsabench", *words],
            env=env,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def run(self) -> tuple[int, dict, str]:
        child = self.start()
        try:
            out, err = child.communicate(timeout=100)
        finally:
            child.kill()
        return child.returncode, json.loads(out) if out else {}, err

    def records(self):
        return read_journal(self.folder / "out" / "journal.jsonl").records

    def asked(self, boot: str) -> list[str]:
        (log,) = (self.folder / "out" / "boots").glob(f"{boot[:8]}/**/asked.txt")
        return log.read_text().split()


@pytest.mark.slow
def test_what_is_less_accurate_is_refused_and_the_next_best_setting_is_confirmed(tmp_path: Path) -> None:
    study = Study(tmp_path, wrong=11, chunks=(1024, 4096))
    code, said, err = study.run()
    assert code == 0, err
    (refused,) = said["passed_over"]
    assert refused["label"] == "prefill_backend=flashmla_sparse chunked_prefill_size=4096"
    assert (refused["gate"]["verdict"], refused["gate"]["effect"]) == ("worse", pytest.approx(-11 / 360))
    # The next best computes as the default does, so that nothing is to be asked of it.
    assert (said["best"]["label"], said["gate"]) == ("chunked_prefill_size=4096", None)
    assert [one["label"] for one in said["candidates"] if one["violation"] > 0] == [refused["label"]]

    records = study.records()
    gated = [record for record in records if record.phase == "gate"]
    assert len(gated) == 2
    for record in gated:
        # It ran in a boot that was confirmed, behind the measurement, in the journal and on the server.
        confirmed = next(one for one in records if one.boot == record.boot and one.phase == "confirm")
        assert records.index(confirmed) < records.index(record)
        asked = study.asked(record.boot)
        assert asked.index("/v1/completions") > len(asked) - asked[::-1].index("/generate") - 1
        assert asked.count("/v1/completions") == 361  # and one to warm up
    assert len({record.boot for record in records}) == 3 + 2 * 2 == len(list((tmp_path / "out" / "boots").iterdir()))
    again = study.run()
    assert (again[0], again[1]["passed_over"], again[1]["measured_now"]) == (0, said["passed_over"], 0)
    assert study.records() == records


@pytest.mark.slow
def test_where_every_setting_answers_only_what_passes_is_confirmed(tmp_path: Path) -> None:
    study = Study(tmp_path, wrong=11, chunks=(1024, 4096), ask="settings")
    code, said, err = study.run()
    assert code == 0, err
    assert (said["best"]["label"], said["passed_over"]) == ("chunked_prefill_size=4096", [])
    refused = next(one for one in said["candidates"] if one["violation"] > 0)
    assert refused["label"] == "prefill_backend=flashmla_sparse chunked_prefill_size=4096"
    assert refused["why_not"] == "less accurate: -3.06 points (sums)"
    assert refused["accuracy"] == {"sums": pytest.approx(339 / 360)}

    records = study.records()
    gated = [record for record in records if record.phase == "gate"]
    # What computes as the default does was not asked; who was asked answered in the boot that had measured it.
    assert len(gated) == 2
    for record in gated:
        assert [one.phase for one in records if one.boot == record.boot] == ["search", "gate"]
    assert len({record.boot for record in records}) == 3 + 2
    again = study.run()
    assert (again[0], again[1]["candidates"], again[1]["measured_now"]) == (0, said["candidates"], 0)

    site = tmp_path / "pages"
    (tmp_path / "configs").mkdir()
    (tmp_path / "study.yaml").rename(
        tmp_path / "configs" / "h200-slice.yaml"
    )  # a report finds a config by its study's name
    words = [sys.executable, "-m", "dsabench", "report", "--results", str(tmp_path / "out"), "--out", str(site)]
    subprocess.run(words, check=True, capture_output=True, cwd=tmp_path, timeout=100)
    (page,) = (site / "studies").glob("*.html")
    assert "against the score in sums for 2 settings; 1 " in page.read_text()


@pytest.mark.slow
def test_a_search_killed_in_its_eval_completes_it(tmp_path: Path) -> None:
    study = Study(tmp_path, wrong=11, delay_s=0.02, ask="settings")
    child = study.start()
    while not (partial := list((tmp_path / "out" / "samples").glob("*.partial.jsonl"))):
        assert child.poll() is None
        time.sleep(0.02)
    child.send_signal(signal.SIGKILL)
    child.communicate()
    code, said, err = study.run()
    assert code == 0, err
    assert partial
    assert said["best"] is None, "the only other setting is less accurate"
    (default, sparse) = sorted((one for one in study.records() if one.phase == "gate"), key=lambda one: one.boot)
    assert {one.outcome.metrics["score"].value for one in (default, sparse)} == {350 / 360, 339 / 360}


@pytest.mark.slow
@pytest.mark.parametrize(("wrong_if_hard", "code"), [(0, 0), (15, 1)])
def test_a_setting_must_pass_every_eval_of_the_gate(tmp_path: Path, wrong_if_hard: int, code: int) -> None:
    study = Study(tmp_path, wrong=0, wrong_if_hard=wrong_if_hard)
    ended, said, err = study.run()
    assert ended == code, err
    gates = said["gates"] or [one["gate"] for one in said["passed_over"]]
    words = {one["workload"]: one["verdict"] for one in gates}
    records = study.records()
    if code == 0:
        assert words == {"sums": "no difference", "hard-sums": "no difference"}
        assert [one["workload"] for one in gates] == ["sums", "hard-sums"], "in the config's order"
        assert said["gate"]["workload"] == "sums"
    else:
        assert words["hard-sums"] == "worse"
        assert said["gate"]["workload"] == "hard-sums", "the verdict that decides"
    # Both evals ran in the same boot of each side, one after the other.
    gated = [record for record in records if record.phase == "gate"]
    assert len(gated) == 4
    assert len({record.boot for record in gated}) == 2
    assert {record.trial.workload.name for record in gated} == {"sums", "hard-sums"}
    again = study.run()
    assert (again[0], again[1]["gates"], again[1]["measured_now"]) == (code, said["gates"], 0)


@pytest.mark.slow
def test_a_sweep_killed_in_its_eval_goes_on_there(tmp_path: Path) -> None:
    study = Study(tmp_path, wrong=0, delay_s=0.02)
    child = study.start()
    samples, partial = tmp_path / "out" / "samples", []
    while not partial:
        assert child.poll() is None
        time.sleep(0.02)
        partial = [file for file in samples.glob("*.partial.jsonl") if file.stat().st_size > 10_000]
    child.send_signal(signal.SIGKILL)
    child.communicate()
    before = (tmp_path / "out" / "journal.jsonl").read_bytes()
    finished = partial[0].read_bytes().count(b"\n")
    assert 0 < finished < 360
    code, said, err = study.run()
    assert code == 0, err
    assert (said["gate"]["verdict"], said["passed_over"]) == ("no difference", [])
    assert said["gate"]["reason"].startswith("yes, not less accurate by more than 1 point:")
    assert (tmp_path / "out" / "journal.jsonl").read_bytes().startswith(before)
    default, best = (record for record in study.records() if record.phase == "gate")
    if default.trial.runtime.knobs["prefill_backend"] != "flashmla_kv":
        default, best = best, default
    # The killed boot is gone, so what was left of its eval took one of its own; the other side shares the confirmed one.
    assert study.asked(default.boot).count("/v1/completions") == 360 - finished + 1
    assert "/generate" not in study.asked(default.boot)
    assert "/generate" in study.asked(best.boot)


@pytest.mark.slow
def test_few_questions_leave_it_undecided(tmp_path: Path) -> None:
    code, said, err = Study(tmp_path, wrong=1, questions=20).run()
    assert code == 1, err
    assert (said["gate"]["verdict"], said["gate"]["n_base"], said["passed_over"]) == ("inconclusive", 20, [])
    assert "more repeats" in said["gate"]["reason"]


def test_questions_that_cannot_be_had_are_told_before_the_first_boot(tmp_path: Path) -> None:
    study = Study(tmp_path, wrong=0)
    config = yaml.safe_load((tmp_path / "study.yaml").read_text())
    del config["gate"]["data"]
    (tmp_path / "study.yaml").write_text(yaml.safe_dump(config))
    code, _, err = study.run()
    assert code == 2
    (line,) = (line for line in err.splitlines() if line.startswith("error:"))
    assert line.startswith("error: gate: sums: no data file, and http://127.0.0.1:9/no cannot be fetched")
    assert "data: FILE" in line
    assert not (tmp_path / "out" / "boots").exists()
