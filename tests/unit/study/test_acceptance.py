"""An acceptance's answer: what lies below the published scores, what is missing, and the page that says so."""

from __future__ import annotations

from pathlib import Path

import pytest

from dsabench.config.load import find_mistakes, load_eval, load_study
from dsabench.evals.published import beside_published
from dsabench.model.evals import EvalTask
from dsabench.model.record import EvalTrial, Metric, Record, Scored
from dsabench.model.runtime import RuntimeSpec
from dsabench.study.acceptance import Acceptance, AcceptedEval, AcceptedLoad, AcceptedServer, price_acceptance
from dsabench.study.acceptance_page import answer_of, write_page
from factories import ENVIRONMENT, START

MODEL = "deepseek-ai/DeepSeek-V3.2-Exp"


def scored(score: float, half: float) -> AcceptedEval:
    """gsm8k as it was published, with this score."""
    spec = load_eval("gsm8k")
    task = EvalTask(
        name="gsm8k",
        harness_id=spec.harness_id,
        scorer=spec.scorer,
        questions_sha256="0" * 64,
        num_questions=1319,
        num_shots=8,
        endpoint="completions",
        temperature=0.0,
        top_p=1.0,
        max_tokens=512,
        repeat=1,
    )
    metrics = {"score": Metric(value=score, n=1319, ci_low=score - half, ci_high=score + half)}
    trial = EvalTrial(runtime=RuntimeSpec(kind="sglang", model=MODEL), workload=task)
    record = Record(
        id=trial.id,
        occasion=0,
        boot="b",
        study="node",
        phase="search",
        trial=trial,
        environment=ENVIRONMENT,
        started_at=START,
        duration_s=25.0,
        outcome=Scored(metrics=metrics),
    )
    beside = beside_published(spec, task, MODEL, metrics, other_data=False)
    return AcceptedEval("gsm8k", record, beside[0])


def acceptance(*evals: AcceptedEval, loads: tuple[AcceptedLoad, ...] = ()) -> Acceptance:
    return Acceptance((AcceptedServer("node", loads, evals),), 1)


def test_a_score_is_below_only_with_its_whole_interval(tmp_path: Path) -> None:
    within, below = acceptance(scored(0.950, 0.011)), acceptance(scored(0.930, 0.014))
    assert (within.below, below.below) == ((), ("node/gsm8k",))
    assert answer_of(within).startswith("As accurate as published: 1 of 1 scores")
    page = write_page("node", "dsabench accept node", below, tmp_path).read_text()
    assert "**Below the published score: node/gsm8k.**" in page
    assert "| gsm8k | 0.930 (0.916 to 0.944) | 0.956 (deepseek-ai/DeepSeek-V3.2-Exp" in page
    assert (tmp_path / "accept.svg").read_text().count("published") > 0


def test_what_is_not_measured_is_said_before_all_is_well() -> None:
    found = acceptance(scored(0.95, 0.011), AcceptedEval("mmlu", None), loads=(AcceptedLoad("chat", None),))
    assert found.missing == ("node/chat", "node/mmlu")
    assert answer_of(found) == "Not finished: node/chat, node/mmlu."


def test_the_shipped_acceptance_takes_less_than_four_hours(tmp_path: Path) -> None:
    prices = price_acceptance(load_study("h200-accept"), tmp_path)
    assert [one.server for one in prices] == ["throughput", "latency", "fixed-lengths"]
    assert sum(one.seconds for one in prices) < 4 * 3600
    assert all(one.gpu_hours == pytest.approx(8 * one.seconds / 3600) and not one.open_evals for one in prices)


@pytest.mark.parametrize(
    ("server", "message"),
    [
        (
            "{name: a, beside: {chta: b200-latency}}",
            "accept[0].beside.chta: unknown workload 'chta'; did you mean chat?",
        ),
        ("{name: a, beside: {chat: b300}}", "accept[0].beside.chat: no published run 'b300' (known: b200-latency, "),
        ("{name: a, evals: [gms8k]}", "accept[0].evals[0]: "),
        ("{name: a, evals: [{eval: gsm8k, data: /nowhere}]}", "accept[0].evals[0].data: /nowhere: no such file"),
        ("{name: a}, {name: a}", "accept[1].name: 'a' names a server already"),
        ("{name: a, base: {tp_sise: 8}}", "accept[0].base.tp_sise: "),
    ],
)
def test_a_mistake_in_a_server_is_named_with_its_key(tmp_path: Path, server: str, message: str) -> None:
    file = tmp_path / "node.yaml"
    file.write_text(
        "name: node\n"
        "runtime: {kind: reference, model: tiny}\n"
        "workloads: [{name: chat, dataset: random-ids, input_len: 8, output_len: 2, num_prompts: 4}]\n"
        "objective: {metric: output_throughput_tok_s, direction: maximize}\n"
        f"accept: [{server}]\n"
    )
    found = [str(one) for one in find_mistakes(file)]
    assert any(message in one for one in found), found
