"""Foreign harnesses as programs: what they are told, and what of theirs becomes a record."""

from __future__ import annotations

import json
import stat
import sys
from pathlib import Path

import pytest

from dsabench.evals.drivers.predictions import read_predictions
from dsabench.evals.drivers.told import read_told
from dsabench.evals.summarise import summarise, tally
from dsabench.results.journal import read_journal
from eval_process import dsabench
from openai_server import OpenAiServer, Turn

# Writes what NeMo-Skills' `ns eval` leaves below --output_dir, and keeps its own command line.
NS = """#!{python}
import json, os, sys
from pathlib import Path
Path("argv.jsonl").open("a").write(json.dumps(sys.argv[1:]) + "\\n")
if sys.argv[1] == "prepare_data":
    sys.exit(0)
options = dict(word.split("=", 1) for word in sys.argv[2:])
if options["--model"] == "broken":
    sys.exit("no such server type")
name, repeats = options["--benchmarks"].split(":")
folder = Path(options["--output_dir"]) / "eval-results" / name
folder.mkdir(parents=True)
for repeat in range(int(repeats)):
    rows = [
        {{"problem": f"p{{i}}", "expected_answer": "7", "generation": "\\\\boxed{{7}}", "num_generated_tokens": 5,
          "predicted_answer": None if i == 2 else "7" if i or repeat else "8", "symbolic_correct": i != 2 and bool(i or repeat)}}
        for i in range(3)
    ]
    (folder / f"output-rs{{repeat}}.jsonl").write_text("".join(json.dumps(row) + "\\n" for row in rows))
if "--model=silent" not in sys.argv:
    own = {{"pass@1[avg-of-2]": 50.0, "majority@2": 50.0, "pass@2": 70.0, "pass@1[avg-of-1]": 33.3333}}
    modes = {{mode: {{"num_entries": 3, "avg_tokens": 5, "symbolic_correct": share}} for mode, share in own.items()}}
    (folder / "metrics.json").write_text(json.dumps({{name: modes}}))
"""


@pytest.fixture
def ns(tmp_path) -> Path:
    path = tmp_path / "ns"
    path.write_text(NS.format(python=sys.executable))
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


async def test_nemo_skills_predictions_become_a_record(tmp_path, ns) -> None:
    async with OpenAiServer(lambda _: Turn("7")) as server:
        code, out, err = await dsabench(
            "aime25", "--base-url", server.url, "--driver", "nemo-skills", "--driver-program", str(ns), "--repeat", "2",
            "--json", home=tmp_path,
        )  # fmt: skip
    assert code == 0, err
    said = json.loads(out)
    assert (said["harness_id"], said["n"], said["metrics"]["original_no_answer"]) == ("nemo-skills-aime25", 6, 2 / 6)
    assert said["original_score"] == pytest.approx(3 / 6)
    assert said["metrics"]["original_majority_at.2"] == pytest.approx((0.5 + 1 + 0) / 3)
    # The program took no 7 from three answers that all box it.
    assert (said["score"], said["n_invalid"], said["differing"]) == (1.0, 0, 3)
    # Its own metrics.json stands beside, and where it says something else, a warning.
    own = {name: said["metrics"][f"driver.{name}"] for name in ("score", "majority_at.2", "pass_at.2")}
    assert own == pytest.approx({"score": 0.5, "majority_at.2": 0.5, "pass_at.2": 0.7})
    assert said["warnings"] == ["the driver says pass_at.2 0.7000, its predictions come to 0.6667"]
    (record,) = read_journal(tmp_path / "results" / "local-evals" / "journal.jsonl").records
    assert record.trial.workload.driver == "nemo-skills"
    (asked,) = (tmp_path / "results").rglob("argv.jsonl")
    prepare, evaluate = map(json.loads, asked.read_text().splitlines())
    assert prepare == ["prepare_data", "aime25"]
    assert {
        "eval", "--benchmarks=aime25:2", "--server_type=sglang", f"--server_address={server.url}/v1", "--model=scripted",
        "++chat_template_kwargs.thinking=true", "++inference.temperature=1.0", "++inference.top_p=0.95",
        "++inference.tokens_to_generate=64000",
    } <= set(evaluate)  # fmt: skip


async def test_a_driver_that_fails_or_is_not_there_is_one_line(tmp_path, ns) -> None:
    words = ("aime25", "--driver", "nemo-skills", "--driver-program")
    async with OpenAiServer(lambda _: Turn("7"), model="broken") as server:
        code, _, err = await dsabench(*words, str(ns), "--base-url", server.url, home=tmp_path)
        assert code == 3
        assert "ended with code 1: no such server type" in err
        code, _, err = await dsabench(*words, "/nowhere/ns", "--base-url", server.url, home=tmp_path)
        assert code == 2
        assert "docs/evals.md says how to install" in err


async def test_a_driver_that_sums_nothing_up_is_read_by_its_predictions(tmp_path, ns) -> None:
    async with OpenAiServer(lambda _: Turn("7"), model="silent") as server:
        words = ("--driver", "nemo-skills", "--driver-program", str(ns), "--repeat", "1", "--json", "--no-html")
        code, out, err = await dsabench("aime25", "--base-url", server.url, *words, home=tmp_path)
    assert code == 0, err
    said = json.loads(out)
    assert said["original_score"] == pytest.approx(1 / 3)
    assert said["warnings"] == ["the driver left no metrics.json: the scores are computed from its predictions"]
    assert "driver.score" not in said["metrics"]


def test_what_sgl_eval_says_of_a_run_is_read(tmp_path) -> None:
    """As sgl-eval 0.1.3 wrote it, but for what is not read."""
    folder = tmp_path / "sgl_eval_aime25_20261122-003156"
    folder.mkdir()
    aggregate = {"error_rate": 0.0, "majority@4": 0.0667, "no_answer": 0.4, "pass@1": 0.0417, "pass@1_sem": 0.016, "pass@4": 0.1, "score": 0.0417}  # fmt: skip
    (folder / "metrics.json").write_text(json.dumps({"aggregate": aggregate, "name": "aime25", "n_repeats": 4}))
    told = read_told(tmp_path, "sgl_eval_*/output-rs*.jsonl")
    assert told == {"score": 0.0417, "majority_at.4": 0.0667, "pass_at.4": 0.1}


GOLDEN = Path(__file__).parents[2] / "golden" / "evals" / "nemo_skills"


def test_what_nemo_skills_says_of_a_run_is_what_its_predictions_come_to() -> None:
    """Written by NeMo-Skills 0.7.0 (`ns eval --benchmarks=aime25:3`, 8 of 30 questions, a scripted server); the questions are left out."""
    samples = read_predictions(GOLDEN, "output-rs*.jsonl", "nemo-skills-aime25")
    assert len(samples) == 24
    ours = summarise(tally(samples), duration_s=None, tokens=None).metrics
    told = read_told(GOLDEN, "output-rs*.jsonl")
    assert told is not None
    assert told == pytest.approx(
        {
            "score": 0.0833333, "no_answer": 0.2083333, "score_spread_of_runs": 0.1443376,
            "pass_at.2": 0.1666667, "pass_at.3": 0.25, "majority_at.2": 0.25, "majority_at.3": 0.125,
        }, abs=1e-6,
    )  # fmt: skip
    same = ("score", "no_answer", "score_spread_of_runs", "pass_at.3", "majority_at.3")
    assert {name: ours[name].value for name in same} == pytest.approx({name: told[name] for name in same})
    tokens = json.loads((GOLDEN / "metrics.json").read_text())["aime25"]["pass@1[avg-of-3]"]["answer_tokens_statistics"]
    assert ours["completion_tokens.mean"].value == pytest.approx(tokens["avg"])


async def test_our_own_is_a_driver_by_name(tmp_path) -> None:
    data = tmp_path / "one.jsonl"
    data.write_text((json.dumps({"question": "How many?", "answer": "#### 7"}) + "\n") * 6)
    async with OpenAiServer(lambda _: Turn("7")) as server:
        words = ("gsm8k-clean", "--driver", "own", "--data", str(data), "--base-url", server.url, "--json", "--no-html")
        code, out, err = await dsabench(*words, home=tmp_path)
    assert code == 0, err
    assert json.loads(out)["score"] == 1.0


def test_a_benchmark_that_nemo_skills_grades_otherwise_is_left_to_its_predictions(tmp_path) -> None:
    modes = {"pass@1": {"num_entries": 3, "judge_correct": 50.0}, "pass@1[avg-of-2]": {"symbolic_correct": 40.0}}
    (tmp_path / "metrics.json").write_text(json.dumps({"hle": modes}))
    assert read_told(tmp_path, "output-rs*.jsonl") == {"score": 0.4}
