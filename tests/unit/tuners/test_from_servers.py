"""What records of servers say: points for the kernel choice, and thresholds that may be a default."""

from __future__ import annotations

import math

import pytest

from dsabench.config.load import load_study
from dsabench.errors import InputError
from dsabench.model.record import Measured, Metric
from dsabench.model.study_result import ObjectiveScore, ScoredSetting, StudyResult
from dsabench.model.verdict import Verdict
from dsabench.runtimes.protocol import AttentionShape
from dsabench.sglang.models import WIDTHS
from dsabench.study.next_boot import before_the_proposer
from dsabench.tuners.mha_threshold import crossover_tokens, plan_threshold, propose, require_threshold_study
from dsabench.tuners.observed import of_servers
from dsabench.tuners.of_sweep import TunePlan
from dsabench.tuners.prefill_mix import Step
from factories import ENVIRONMENT, make_record, make_spec, make_workload
from studies import STUDY
from studies import load_study as load_small

TARGET = AttentionShape("reference", 4, 32, 2)
AXES = "mha_threshold_tokens: [32, 64, 1024]"
THRESHOLDS = STUDY.replace("prefill_backend: [flashmla_kv, flashmla_sparse], chunked_prefill_size: [128, 256]", AXES)


def served(kernel: str, throughput: float, **knobs):
    spec = make_spec(prefill_backend=kernel, kv_cache_dtype="fp8_e4m3", **knobs)
    metrics = {"total_throughput_tok_s": Metric(value=throughput, n=16)}
    workload = make_workload(input_len=4096, max_concurrency=1)
    return make_record(spec=spec, workload=workload, outcome=Measured(metrics=metrics))


def test_servers_that_differ_in_the_kernel_alone_are_a_point():
    records = [served("flashmla_kv", v, chunked_prefill_size=8192) for v in (100.0, 102.0, 104.0)]
    records += [served("flashmla_sparse", 204.0, chunked_prefill_size=8192)]
    records += [served("flashmla_sparse", 1.0, chunked_prefill_size=1024), served("flashmla_kv", 1.0)]
    (point,) = of_servers(records, TARGET)
    assert point.step == Step(4096, 4096)
    assert point.lost("flashmla_kv") == pytest.approx(1.0)
    assert point.lost("flashmla_sparse") == 0
    assert point.noise == pytest.approx(0.02)
    assert point.source == "server"
    assert of_servers(records, AttentionShape("sglang", 4, 32, 2)) == []


def verdict(word, effect=0.3, **more):
    fields = {"metric": "output_throughput_tok_s", "workload": "one", "n_base": 2, "n_candidate": 2, "reason": "r"}
    return Verdict(**{**fields, "verdict": word, "effect": effect, "ci_low": 0.1, "ci_high": 0.5, **more})


def study(folder, tokens, words=("better",), gate=None, *, margin=None, unconfirmed=0):
    text = THRESHOLDS + (f"gate: {{eval: gsm8k, margin: {margin}, repeat: 1}}\n" if margin else "")
    config = load_small(folder, text)
    spec = config.spec({"mha_threshold_tokens": tokens})
    best = ScoredSetting(spec, "best", ObjectiveScore(1.0, 0.0))
    verdicts = tuple(verdict(word) for word in words)
    result = StudyResult(
        ENVIRONMENT,
        (make_record(spec=spec),),
        0,
        (),
        best,
        verdicts,
        None,
        () if gate is None else (gate,),
        unconfirmed=unconfirmed,
    )
    return propose(config, result, "dsabench tune")


def gate(word):
    return verdict(word, effect=-0.001, metric="score", workload="gsm8k", unit="points", n_base=1319)


@pytest.mark.parametrize(
    ("tokens", "more", "standing", "has_table"),
    [
        (32, {}, "default", True),
        (1024, {}, "accuracy unproven", True),
        (1024, {"gate": gate("no difference"), "margin": 0.01}, "default", True),
        (1024, {"gate": gate("inconclusive"), "margin": 0.01}, "refused by the gate", False),
        (1024, {"gate": gate("worse"), "margin": 0.01}, "refused by the gate", False),
        (1024, {"words": ("better", "worse")}, "not faster", False),
        (1024, {"words": ("inconclusive",)}, "not faster", False),
        (32, {"unconfirmed": 1}, "unfinished", False),
        (1024, {"gate": gate("inconclusive"), "margin": 0.01, "unconfirmed": 1}, "unfinished", False),
        (1024, {"gate": gate("worse"), "margin": 0.01, "unconfirmed": 4}, "refused by the gate", False),
    ],
)
def test_a_threshold_beyond_topk_takes_a_passed_gate(tmp_path, tokens, more, standing, has_table):
    proposal = study(tmp_path, tokens, **more)
    assert proposal.standing == standing
    assert (proposal.table is not None) is has_table
    if proposal.table is not None:
        assert proposal.table.evidence.ci_low == 0.1
        assert [g.verdict for g in proposal.table.evidence.gates] == (["no difference"] if "gate" in more else [])


LATENCY = "{metric: ttft_ms.p50, direction: minimize}"
THROUGHPUT = "{metric: output_throughput_tok_s, direction: maximize}"


@pytest.mark.parametrize(("objective", "effects"), [(THROUGHPUT, (0.3, 0.1)), (LATENCY, (-0.3, -0.1))])
def test_the_evidence_is_the_weakest_workloads(tmp_path, objective, effects):
    config = load_small(tmp_path, THRESHOLDS.replace(THROUGHPUT, objective))
    spec = config.spec({"mha_threshold_tokens": 32})
    verdicts = tuple(
        verdict("better", effect, metric=config.objective.metric, ci_low=effect - 0.01) for effect in effects
    )
    result = StudyResult(
        ENVIRONMENT,
        (make_record(spec=spec),),
        0,
        (),
        ScoredSetting(spec, "best", ObjectiveScore(1.0, 0.0)),
        verdicts,
        None,
        None,
    )
    table = propose(config, result, "dsabench tune").table
    assert table is not None
    assert table.evidence.ci_low == effects[1] - 0.01


def test_dense_attention_takes_less_arithmetic_up_to_a_length_that_hangs_on_the_heads():
    widths = WIDTHS["v3.2"]
    tokens = crossover_tokens(widths, 128)
    dense = tokens**2 / 2 * 128 * 320
    sparse = (tokens * 2048 - 2048**2 / 2) * 128 * 1088 + tokens**2 / 2 * 64 * 128 / 2
    assert dense == pytest.approx(sparse)
    assert 14_000 < tokens < 15_000
    assert crossover_tokens(widths, 64) > tokens
    assert math.isinf(crossover_tokens(widths, 8))  # the indexer alone costs more than dense attention of few heads


def test_the_search_of_a_threshold_begins_below_the_crossover():
    """results/h200/threshold: of 2,048 to 16,384 tokens 8,192 came out best."""
    plan = plan_threshold(load_study("h200-threshold"))
    assert before_the_proposer(plan.config) == [plan.config.spec({"mha_threshold_tokens": 8192})]
    (line,) = plan.arithmetic
    assert "up to 14,371 tokens, at 128 heads a rank" in line


def test_a_model_whose_widths_are_not_known_has_no_crossover(tmp_path):
    config = load_small(tmp_path, THRESHOLDS)
    assert plan_threshold(config) == TunePlan(config, ())


def test_a_study_of_more_than_the_threshold_is_refused(tmp_path):
    with pytest.raises(InputError, match="mha_threshold_tokens alone"):
        require_threshold_study(load_small(tmp_path))
