"""Evals of two commits, compared as a user would: nothing of the older one is in the working tree."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from dsabench.cli.main import run
from dsabench.evals.sample import EvalSample
from dsabench.model.evals import EvalTask
from dsabench.model.record import EvalTrial, Metric, Record, Scored
from dsabench.model.runtime import RuntimeSpec
from dsabench.results.journal import Journal
from factories import make_record

QUESTIONS = 300


def git(folder: Path, *words: str) -> None:
    identity = ("-c", "user.name=t", "-c", "user.email=t@example.org")
    subprocess.run(["git", "-C", str(folder), *identity, *words], check=True, capture_output=True)


def sample(number: int, *, right: bool) -> EvalSample:
    return EvalSample(
        id=f"q{number}#0", question=f"q{number}", repeat=0, harness_id="sums-1", prompt="1+1?", completion="2", expected="2",
        answer="2" if right else "3", score=float(right), standing="correct" if right else "wrong",
    )  # fmt: skip


def write_run(folder: Path, name: str, *, wrong: int, occasion: int) -> None:
    """A finished eval whose first `wrong` questions are answered wrongly."""
    (folder / "samples").mkdir(parents=True, exist_ok=True)
    lines = [sample(number, right=number >= wrong).model_dump_json() for number in range(QUESTIONS)]
    (folder / "samples" / name).write_text("\n".join(lines) + "\n")
    Journal(folder).append(record(f"samples/{name}", occasion))


def record(samples: str, occasion: int) -> Record:
    task = EvalTask(
        name="sums", harness_id="sums-1", scorer="last-integer", questions_sha256="0" * 64, num_questions=QUESTIONS,
        endpoint="chat", temperature=0.0, top_p=1.0, max_tokens=9, repeat=1,
    )  # fmt: skip
    trial = EvalTrial(runtime=RuntimeSpec(kind="external", model="m", base_url="http://127.0.0.1:1"), workload=task)
    outcome = Scored(metrics={"score": Metric(value=0.9, n=QUESTIONS, ci_low=0.8, ci_high=1.0)}, samples=samples)
    return make_record(occasion=occasion, minute=occasion).model_copy(
        update={"trial": trial, "id": trial.id, "outcome": outcome}
    )


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two commits: one run in the first, in the second a worse one beside it, the first one's samples gone from the tree."""
    place = tmp_path / "results" / "evals"
    git(tmp_path, "init", "-q", "-b", "main")
    write_run(place, "first.jsonl", wrong=10, occasion=0)
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-q", "-m", "baseline")
    write_run(place, "second.jsonl", wrong=40, occasion=1)
    (place / "samples" / "first.jsonl").unlink()
    git(tmp_path, "add", "-A")
    git(tmp_path, "commit", "-q", "-m", "a worse one")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("base", "candidate"),
    [
        ("HEAD~1:results/evals", "results/evals"),
        ("HEAD~1:results/evals", "HEAD:results/evals"),
        ("HEAD~1", "main"),
        ("HEAD~1:results/evals/samples/first.jsonl", "HEAD:results/evals/samples/second.jsonl"),
        ("HEAD~1:results/evals/samples/first.jsonl", "results/evals/samples/second.jsonl"),
    ],
)
@pytest.mark.usefixtures("repository")
def test_a_side_of_an_eval_may_be_a_commit(base: str, candidate: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["compare", base, candidate, "--margin", "0.01", "--json"]) == 0
    (verdict,) = json.loads(capsys.readouterr().out)
    assert (verdict["verdict"], verdict["metric"]) == ("worse", "score")
    assert verdict["effect"] == pytest.approx(-30 / QUESTIONS)


@pytest.mark.usefixtures("repository")
def test_what_a_commit_lacks_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["compare", "HEAD~1:results/evals/samples/second.jsonl", "results/evals", "--margin", "0.01"]) == 2
    assert "no such file in this commit" in capsys.readouterr().err
    assert run(["compare", "HEAD~1:results/nothing", "results/evals", "--margin", "0.01"]) == 2
    assert "no journal.jsonl" in capsys.readouterr().err
