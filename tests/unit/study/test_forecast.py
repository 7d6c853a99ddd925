"""Forecasts: of boots, loads with their rehearsals, and evals; and the limit of GPU-hours."""

from __future__ import annotations

import pytest

from dsabench.config.load import load_eval
from dsabench.config.load import load_study as load_config
from dsabench.evals.forecast import answer_tokens, answering_s
from dsabench.model.record import Metric
from dsabench.model.runtime import refuse_nothing
from dsabench.model.study import GateSpec
from dsabench.results.study_records import StudyRecords
from dsabench.study.budget import RunLimits, gpu_hours_left, why_confirmation_stops, why_search_stops
from dsabench.study.forecast import estimate_cost, gate_lines
from dsabench.study.plan import make_plan
from dsabench.study.space_check import check_space
from dsabench.study.trial import gpu_cost
from factories import ENVIRONMENT, make_failure, make_record
from studies import STUDY, load_study

GATED = "{name: gated, runtime: {kind: sglang, version: 0.5.23, model: deepseek-ai/DeepSeek-V3.2, hardware: h200, base: {tp_size: 8}}, workloads: [{name: chat, dataset: random-ids, input_len: 1024, output_len: 1024, num_prompts: 64, max_concurrency: 16}], sweeps: [{axes: {chunked_prefill_size: [8192, 16384]}}], objective: {metric: output_throughput_tok_s, direction: maximize}, GATE}"


def config_with(tmp_path, gate: str):
    file = tmp_path / "gated.yaml"
    file.write_text(GATED.replace("GATE", gate))
    return load_config(file)


def empty(config) -> StudyRecords:
    return StudyRecords(config, ENVIRONMENT.fingerprint, ())


@pytest.mark.parametrize("model", ["deepseek-ai/DeepSeek-V3.2-Exp", "deepseek-ai/DeepSeek-V3.2"])
def test_aime_is_forecast_as_long_as_its_published_runs_took(model) -> None:
    spec = load_eval("aime25")
    published = [one.scores["duration_s"] for one in spec.published if one.settings.get("max_tokens") == 64000]
    forecast = answering_s(GateSpec(eval="aime25", repeat=4, margin=0.5), spec, model, 40.0, 20000.0)
    assert len(published) == 2
    assert forecast is not None
    assert all(took / 1.5 < forecast < took * 1.5 for took in published)


def test_the_tokens_of_an_answer_are_those_published_else_stated_else_allowed() -> None:
    assert answer_tokens(load_eval("aime25")) == 15040
    assert answer_tokens(load_eval("gpqa")) == 7000
    assert answer_tokens(load_eval("mmlu")) == 1
    assert answer_tokens(load_eval("recall")) == 10


def test_needles_cost_their_prompts() -> None:
    """(1,500 + 6,000 + 24,000) words × 20 texts × 1.3 tokens a word, at 20,000 tokens/s."""
    seconds = answering_s(GateSpec(eval="needle", repeat=1), load_eval("needle"), "any", 1e9, 20000.0)
    assert seconds == pytest.approx(1.3 * 31500 * 20 / 20000, rel=1e-3)


def test_an_eval_of_unknown_length_is_named_and_not_counted(tmp_path) -> None:
    config = load_study(tmp_path, STUDY + "gate: {eval: recall, measure: agreement, repeat: 2}\n")
    cost = estimate_cost(empty(config))
    assert (cost.evals_s, cost.open_evals) == (0.0, ("recall",))
    assert "recall" in list(gate_lines(config, cost, 2))[-1]


def test_a_plan_holds_both_sides_answers_until_they_are_recorded(tmp_path) -> None:
    config = config_with(tmp_path, "gate: {eval: gsm8k, margin: 0.02, repeat: 1}")
    records, limits = empty(config), RunLimits(config.budget, 0)
    plan = make_plan(records, limits, check_space(config, refuse_nothing))
    without = config.model_copy(update={"gate": None})
    bare = make_plan(empty(without), limits, check_space(without, refuse_nothing))
    assert plan.to_score == 2
    assert plan.seconds_left - bare.seconds_left == pytest.approx(2 * plan.cost.evals_s)
    assert plan.cost.evals_s > 0


def test_random_weights_boot_faster_and_the_first_boot_compiles(tmp_path) -> None:
    config = config_with(tmp_path, "gate: null")
    real, base = estimate_cost(empty(config)), config.runtime.base
    runtime = config.runtime.model_copy(update={"base": {**base, "load_format": "dummy"}})
    dummy = estimate_cost(empty(config.model_copy(update={"runtime": runtime})))
    assert (real.boot_s, dummy.boot_s) == (300.0, 60.0)
    assert dummy.of(2, 0) == 2 * 60 + dummy.compile_s
    assert dummy.of(0, 1) == dummy.trial_s


def test_fewer_rehearsals_make_a_shorter_trial(tmp_path) -> None:
    config = config_with(tmp_path, "gate: null")
    once = config.model_copy(update={"workloads": (config.workloads[0].model_copy(update={"rehearsal_passes": 1}),)})
    assert estimate_cost(empty(once)).trial_s == pytest.approx(estimate_cost(empty(config)).trial_s * 2 / 3)


def test_gpu_hours_count_boots_trials_and_failures_once(tmp_path) -> None:
    config = load_study(tmp_path)
    spec, other = config.default, config.spec({"chunked_prefill_size": 128})
    booted = [
        make_record(spec=spec, workload=one, boot="a").model_copy(update={"boot_s": 100.0, "duration_s": 50.0})
        for one in config.workloads
    ]
    failed = [
        make_record(spec=other, workload=one, boot="b", outcome=make_failure()).model_copy(
            update={"boot_s": None, "duration_s": 30.0}
        )
        for one in config.workloads
    ]
    records = StudyRecords(config, ENVIRONMENT.fingerprint, [*booted, *failed])
    expected = 8 * (100.0 + 50.0 * len(booted) + 30.0)
    assert records.gpu_seconds(0, lambda _: 8) == pytest.approx(expected)
    assert records.gpu_seconds(1, lambda _: 8) == 0.0


def test_gpu_hours_end_the_search_before_they_are_exceeded_and_keep_the_confirmation(tmp_path) -> None:
    config = load_study(tmp_path)

    def limits(hours: float) -> RunLimits:
        return RunLimits(config.budget.model_copy(update={"gpu_hours": hours}), 0, gpus=lambda _: 8, largest=8)

    def measured(spec, boot):
        return [
            make_record(spec=spec, workload=one, boot=boot).model_copy(update={"boot_s": 324.0, "duration_s": 18.0})
            for one in config.workloads
        ]

    default = StudyRecords(config, ENVIRONMENT.fingerprint, measured(config.default, "a"))
    assert gpu_hours_left(default, limits(10.0), estimate_cost(default)) == pytest.approx(10.0 - 0.8)
    assert why_search_stops(default, limits(1.7)) is None, "the default alone decides nothing: one more"
    assert "one more boot would take 0.8 GPU-hours, and 0.7 of 1.5 are left" in str(
        why_search_stops(default, limits(1.5))
    )
    other = measured(config.spec({"chunked_prefill_size": 128}), "b")
    both = StudyRecords(config, ENVIRONMENT.fingerprint, [*default.records, *other])
    kept = config.boots_to_confirm
    assert f"{1 + kept} boots, those of the confirmation among them, would take" in str(
        why_search_stops(both, limits(1.6 + 0.8 * kept))
    )
    assert why_search_stops(both, limits(1.7 + 0.8 * (kept + 1))) is None
    assert why_confirmation_stops(both, limits(2.5)) is None
    assert "GPU-hours" in str(why_confirmation_stops(both, limits(2.3)))


def test_the_price_of_a_million_tokens_follows_from_speed_and_gpus() -> None:
    metrics = {
        "output_throughput_tok_s": Metric(value=4000.0, n=64),
        "total_throughput_tok_s": Metric(value=8000.0, n=64),
    }
    told = {name: metric.value for name, metric in gpu_cost(metrics, 8, 2.5).items()}
    assert told["gpu_s_per_output_token"] == 0.002
    assert told["cost_per_million_output_tokens_usd"] == pytest.approx(8 * 2.5 * 1e6 / (4000 * 3600))
    assert told["cost_per_million_tokens_usd"] == pytest.approx(told["cost_per_million_output_tokens_usd"] / 2)
    assert set(gpu_cost(metrics, 8, None)) == {"gpu_s_per_output_token", "gpu_s_per_token"}
    assert gpu_cost(metrics, 0, 2.5) == {}
