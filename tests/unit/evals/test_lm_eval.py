"""Runs of lm-evaluation-harness, compared as a user would: sglang#39797, six runs against three."""

from __future__ import annotations

import json
import random

import pytest

from dsabench.cli.main import run

QUESTIONS = 400


def row(doc: int, score: float, *, filter_: str = "flexible-extract", **more) -> dict:
    """As `lm_eval --log_samples` writes it."""
    given = {
        "doc_id": doc, "doc": {"question": f"q{doc}"}, "target": "18", "arguments": {}, "resps": [["... #### 18"]],
        "filtered_resps": ["18" if score else "3"], "filter": filter_, "metrics": ["exact_match"], "exact_match": score,
        "doc_hash": f"{doc:064x}", "prompt_hash": f"{doc:064x}", "target_hash": "0",
    }  # fmt: skip
    return {**given, **more}


def write(path, rows) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(one) + "\n" for one in rows))
    return str(path)


def compared(capsys, *words: str) -> tuple[int, list[dict]]:
    code = run(["compare", *words, "--margin", "0.01", "--json"])
    return code, json.loads(capsys.readouterr().out)


def test_files_are_compared_by_filter_and_metric(tmp_path, capsys) -> None:
    rows = [row(doc, 1.0, filter_=name) for doc in range(QUESTIONS) for name in ("strict-match", "flexible-extract")]
    worse = [{**one, "exact_match": float(one["filter"] != "strict-match" or one["doc_id"] > 20)} for one in rows]
    code, verdicts = compared(capsys, write(tmp_path / "a.jsonl", rows), write(tmp_path / "b.jsonl", worse))
    assert code == 0
    assert {one["workload"]: one["verdict"] for one in verdicts} == {
        "lm-eval strict-match exact_match": "worse",
        "lm-eval flexible-extract exact_match": "no difference",
    }
    assert {one["n_base"] for one in verdicts} == {QUESTIONS}


def test_runs_in_a_folder_are_repeats_of_each_question(tmp_path, capsys) -> None:
    """Six runs against three whose scores lie 1.3 points apart, of questions that repeat themselves mostly."""
    rng = random.Random(1)
    hard = [rng.random() for _ in range(QUESTIONS)]

    def runs(folder, count: int, lost: float) -> str:
        for number in range(count):
            scores = [float(rng.random() < (0.97 if one > 0.05 else 0.1) - lost) for one in hard]
            write(tmp_path / folder / "model" / f"samples_gsm8k_{number}.jsonl", map(row, range(QUESTIONS), scores))
        return str(tmp_path / folder)

    code, [verdict] = compared(capsys, runs("base", 6, 0.0), runs("candidate", 3, 0.1))
    assert (code, verdict["verdict"]) == (0, "worse")
    assert verdict["effect"] == pytest.approx(-0.1, abs=0.03)
    assert verdict["n_base"] == QUESTIONS
    assert "bootstrap" in verdict["reason"], "repeats are there"


@pytest.mark.parametrize(
    ("second", "said"),
    [
        ('{"doc_id": 1, "filtered_resps": []}', "b.jsonl:2: a sample of lm-evaluation-harness? no 'metrics'"),
        ("[1]", "b.jsonl:2: a sample of lm-evaluation-harness? not a sample with doc_id"),
        ('{"doc_id": 1', "b.jsonl:2: a sample of lm-evaluation-harness? not a sample with doc_id"),
        (json.dumps(row(1, 0.0, exact_match="yes")), "b.jsonl:2: a sample of lm-evaluation-harness?"),
        (json.dumps(row(1, 12.5)), "no metric in it that is a share of 1"),
        (json.dumps(row(0, 0.0, target="19")), None),
    ],
)
def test_what_cannot_be_read_says_why(tmp_path, capsys, second, said) -> None:
    base = write(tmp_path / "a.jsonl", [row(0, 1.0)])
    candidate = tmp_path / "b.jsonl"
    candidate.write_text(f"{json.dumps(row(0, 1.0))}\n{second}\n")
    code = run(["compare", base, str(candidate), "--margin", "0.01"])
    err = capsys.readouterr().err
    assert (code, err.count("\n")) == ((0, 0) if said is None else (2, 1))
    assert said is None or said in err


def test_a_file_of_something_else_is_told_what_samples_look_like(tmp_path, capsys) -> None:
    other = tmp_path / "other.jsonl"
    other.write_text('{"a": 1}\n')
    assert run(["compare", str(other), str(other), "--margin", "0.01"]) == 2
    assert (
        "their lines have harness_id, those of lm-evaluation-harness doc_id and filtered_resps"
        in capsys.readouterr().err
    )
