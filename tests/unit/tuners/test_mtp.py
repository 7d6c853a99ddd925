"""Draft steps: their arithmetic, what records say of them, and the schedule that becomes flags."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import yaml

from dsabench.cli.main import run
from dsabench.config.load import load_study
from dsabench.emit.tables import write_table
from dsabench.errors import InputError
from dsabench.model.record import Measured, Metric
from dsabench.model.sample import Frames, RequestSample
from dsabench.model.study_result import ObjectiveScore, ScoredSetting, StudyResult
from dsabench.model.tuned_table import StepsRule
from dsabench.model.verdict import Verdict
from dsabench.results.samples import write_samples
from dsabench.tuners.mtp import (
    _of_slice,
    accept_length,
    accept_rate,
    drafting,
    measured_rate,
    plan_mtp,
    slots_of,
    step_costs,
    table_of,
)
from factories import ENVIRONMENT, make_record
from unit.emit.made import made_table

COST = {
    1: {0: 1.0, 1: 1.1, 2: 1.2, 3: 1.3},
    32: {0: 1.0, 1: 1.5, 2: 2.0, 3: 2.6},
    128: {0: 1.0, 1: 2.1, 2: 3.2, 3: 4.4},
}
"""By batch size: alone a draft costs little, in a large batch verification is another batch."""


@pytest.fixture
def config(tmp_path):
    def made(dataset="sharegpt", **base):
        study = {
            "name": "steps",
            "runtime": {
                "kind": "sglang",
                "version": "0.5.16",
                "model": "deepseek-ai/DeepSeek-V3.2",
                "hardware": "h200",
                "base": {"tp_size": 8, "speculative_algorithm": "off", "kv_cache_dtype": "fp8_e4m3", **base},
            },
            "workloads": [
                {"name": f"b{n}", "dataset": dataset, "num_prompts": 256, "max_concurrency": n}
                | ({"tokenizer": "words"} if dataset == "sharegpt" else {"input_len": 64, "output_len": 64})
                for n in COST
            ],
            "sweeps": ["dsa_mtp"],
            "objective": {"metric": "output_throughput_tok_s", "direction": "maximize"},
            "budget": {"max_trials": 24, "confirm_boots": 3},
        }
        (tmp_path / "steps.yaml").write_text(yaml.safe_dump(study))
        return load_study(tmp_path / "steps.yaml")

    return made


STEPS_TAKEN = 125


def request(step_ms, length, *, prefill_ms=900):
    """A request of so many steps with so many tokens a step, of which every third waits until somebody's prompt is read."""
    at_s = [(step_ms * step + prefill_ms * (step // 3)) / 1e3 for step in range(STEPS_TAKEN + 1)]
    left, counts = round(STEPS_TAKEN * length), [1]
    for steps in range(STEPS_TAKEN, 0, -1):
        counts.append(round(left / steps))
        left -= counts[-1]
    return RequestSample(0, 0.0, 0.0, at_s[-1], 64, 64, Frames.of(zip(at_s, counts, strict=True)))


@pytest.fixture
def folder(tmp_path):
    """Samples of servers with these costs, whose text accepts drafts at a rate of 0.8."""
    for batch, some in COST.items():
        for steps, cost in some.items():
            samples = [request(20 * cost, accept_length(0.8, steps))] * 3
            write_samples(tmp_path, f"samples/{batch}-{steps}.parquet", samples)
    return tmp_path


def records_of(config):
    """Of these servers."""
    found = []
    for workload in config.workloads:
        for steps in COST[workload.max_concurrency]:
            metrics = {"accept_length.weighted": Metric(value=accept_length(0.8, steps), n=256)} if steps else {}
            spec = config.spec(drafting(steps) if steps else {})
            outcome = Measured(metrics=metrics, samples=f"samples/{workload.max_concurrency}-{steps}.parquet")
            found.append(make_record(spec=spec, workload=workload, outcome=outcome))
    return tuple(found)


def result_of(config, records, words=("better", "better", "no difference")):
    spec = config.spec(drafting(1))
    fields = {"metric": "output_throughput_tok_s", "n_base": 3, "n_candidate": 3, "effect": 0.2, "reason": "r"}
    verdicts = tuple(
        Verdict(**fields, workload=load.name, verdict=word, ci_low=0.1, ci_high=0.3)
        for load, word in zip(config.workloads, words, strict=True)
    )
    best = ScoredSetting(spec, "best", ObjectiveScore(1.0, 0.0))
    return StudyResult(ENVIRONMENT, records, 0, (), best, verdicts, None)


def test_accept_length_and_its_inverse():
    assert accept_length(0.0, 3) == 1
    assert accept_length(1.0, 3) == 4
    assert accept_length(0.5, 2) == 1.75
    for rate in (0.1, 0.55, 0.93):
        assert accept_rate(accept_length(rate, 3), 3) == pytest.approx(rate)


def test_costs_are_of_a_step_and_not_of_a_token(config, folder):
    study = config()
    costs = step_costs(records_of(study), folder)
    assert {(one.batch, one.steps): round(one.cost, 3) for one in costs} == {
        (batch, steps): cost for batch, some in COST.items() for steps, cost in some.items()
    }
    assert measured_rate(costs) == pytest.approx(0.8)
    without = [record for record in records_of(study) if record.trial.runtime.knobs["speculative_algorithm"] != "off"]
    assert step_costs(without, folder) == []


def test_many_drafts_for_one_request_and_none_for_a_full_batch(config, folder):
    slots = slots_of(step_costs(records_of(config()), folder), 0.8)
    assert [(slot.batch, slot.best) for slot in slots] == [(1, 3), (32, 2), (128, 0)]
    for slot in slots:
        speeds = {steps: accept_length(0.8, steps) / cost for steps, cost in COST[slot.batch].items()}
        assert slot.speeds == pytest.approx(speeds, rel=1e-3)  # times are kept to a microsecond
        assert slot.best in slot.candidates
    # At some accept rate each is the fastest; in the full batch no rate makes up for a draft.
    assert slots[0].candidates == (0, 1, 2, 3)
    assert slots[2].candidates == (0,)


def test_the_plan_begins_with_what_the_accept_rate_promises(config):
    plan = plan_mtp(config(), 0.85)
    assert [one["speculative_num_steps"] for one in plan.config.space.enqueued] == [3, 2, 1]
    assert plan.config.space.follow == ()
    assert "3 draft steps: 3.19 tokens a step at an accept rate of 0.85" in plan.arithmetic[0]
    low = plan_mtp(config(), 0.01)
    assert [one["speculative_num_steps"] for one in low.config.space.enqueued] == [1, 2, 3]
    pinned = plan_mtp(config(load_format="dummy"), 0.85)
    specs = [pinned.config.spec(one) for one in pinned.config.space.enqueued]
    assert [spec.knobs["simulated_accept_length"] for spec in specs] == [3.19, 2.57, 1.85]
    assert "simulated_accept_length" not in pinned.config.default.knobs


@pytest.mark.parametrize(
    ("sweeps", "base", "said"),
    [
        ([{"axes": {"speculative_algorithm": ["off", "EAGLE"]}}], {}, "needs the axis speculative_num_steps"),
        (["dsa_mtp", "dsa_chunk"], {}, "the axis chunked_prefill_size is no setting of multi-token prediction"),
        (["dsa_mtp"], {"speculative_algorithm": "EAGLE"}, 'base must say speculative_algorithm: "off"'),
    ],
)
def test_another_study_is_refused(config, tmp_path, sweeps, base, said):
    config()
    study = yaml.safe_load((tmp_path / "steps.yaml").read_text())
    study["sweeps"] = sweeps
    study["runtime"]["base"] |= base
    (tmp_path / "steps.yaml").write_text(yaml.safe_dump(study))
    with pytest.raises(InputError, match=said):
        plan_mtp(load_study(tmp_path / "steps.yaml"), 0.85)


def test_the_schedule_is_a_table_with_the_measured_rate(config, folder):
    study = config()
    table, costs, slots, standing = table_of(
        study, result_of(study, records_of(study)), folder, None, "dsabench tune mtp steps"
    )
    assert (len(costs), len(slots)) == (12, 3)
    assert standing == "faster; accept rate 0.8, as measured"
    assert (table.kind, table.rule.steps, table.evidence.conditions[0]) == (
        "mtp",
        (3, 2, 0),
        "accept rate 0.8, as measured",
    )
    assert table.rule.adaptive_config()["128"] == {"candidate_steps": [0]}
    given, *_ = table_of(study, result_of(study, records_of(study)), folder, 0.3, "dsabench tune mtp steps")
    assert given.rule.steps[1:] == (0, 0)


def test_the_reference_runtime_serves_no_slice():
    assert _of_slice(load_study("local-mtp")) == []


def test_without_an_accept_rate_of_text_there_are_costs_and_no_schedule(config, folder):
    study = plan_mtp(config(load_format="dummy"), 0.8).config
    records = records_of(study)
    labelled = tuple(record.model_copy(update={"labels": ("random weights", "simulated")}) for record in records)
    table, costs, _, standing = table_of(study, result_of(study, labelled), folder, None, "x")
    assert (table, len(costs)) == (None, 12)
    assert "not that of text (random tokens, random weights, or pinned); --accept-rate says it" in standing
    given, *_ = table_of(study, result_of(study, labelled), folder, 0.8, "x")
    assert given.evidence.label == "simulated"
    random = config(dataset="random-ids")
    assert table_of(random, result_of(random, records_of(random)), folder, None, "x")[0] is None


@pytest.mark.parametrize(
    ("told", "is_measured"), [({"load_format": "safetensors"}, True), ({"load_format": "dummy"}, False), ({}, False)]
)
def test_the_accept_rate_of_a_random_model_is_not_that_of_text(told, is_measured, folder):
    study = load_study("local-mtp")
    default, drafted = study.default, study.spec(drafting(3))
    metrics = {"accept_length.weighted": Metric(value=3.0, n=9)}
    samples = "samples/1-3.parquet"
    records = tuple(
        make_record(spec=spec, workload=load, outcome=Measured(metrics=metrics, samples=samples)).model_copy(
            update={"resolved": {"reference": {}, **told}}
        )
        for load in study.workloads
        for spec in (default, drafted)
    )
    standing = table_of(study, result_of(study, records, ("better",) * 3), folder, None, "x")[3]
    assert ("as measured" in standing) == is_measured, standing


def test_what_may_be_no_table(config, folder):
    study = config()
    records = records_of(study)
    worse = table_of(study, result_of(study, records, ("better", "worse", "better")), folder, None, "x")
    assert (worse[0], worse[3][:31]) == (None, "not faster than without drafts:")
    unfinished = replace(result_of(study, records), unconfirmed=2)
    assert table_of(study, unfinished, folder, None, "x")[3].startswith("unfinished: 2 boots")
    split = config(dp_attention=True, dp_size=8)
    assert "does not adapt steps under DP attention" in table_of(split, result_of(split, records), folder, None, "x")[3]


RULE = {"form": "steps", "batch_sizes": [1, 32], "candidates": [[0, 1, 3], [0]], "steps": [3, 0]}


def test_flags_and_the_file_that_sglang_reads(tmp_path, capsys):
    table = write_table(tmp_path, made_table("mtp", RULE))
    words = ["emit", str(table), "--config", "h200-tp8", "--runtime-version", "0.5.16", "--out", str(tmp_path / "out")]
    assert run([*words, "--as", "command"]) == 0
    script = (tmp_path / "out/best.sh").read_text()
    for flag in ("algorithm EAGLE", "num-steps 3", "eagle-topk 1", "num-draft-tokens 4", "adaptive "):
        assert f"--speculative-{flag}" in script, flag
    file = tmp_path / "out/speculative-adaptive.json"
    assert f"--speculative-adaptive-config {file}" in script
    assert json.loads(file.read_text()) == {"1": {"candidate_steps": [0, 1, 3]}, "32": {"candidate_steps": [0]}}
    capsys.readouterr()
    for form, said in (("plugin", "flags of sglang say it already"), ("k8s", "a file beside the command")):
        assert run([*words, "--as", form]) == 2
        assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"batch_sizes": [32, 1]}, "ascend"),
        ({"steps": [3]}, "one entry for each"),
        ({"steps": [2, 0]}, "among the candidates"),
        ({"candidates": [[-1, 3], [0]]}, "among the candidates"),
    ],
)
def test_a_rule_that_contradicts_itself_is_refused(changes, said):
    with pytest.raises(ValueError, match=said):
        StepsRule.model_validate({**RULE, **changes})


def test_several_steps_in_a_frame_are_several_steps(config, folder):
    """As a server sends them with `--stream-interval`."""
    whole = [request(20, 1)] * 3
    write_samples(folder, "samples/1-0.parquet", [request(80, 4)] * 3)
    write_samples(folder, "samples/32-0.parquet", whole)
    costs = step_costs(records_of(config()), folder)
    assert [round(one.step_ms, 3) for one in costs if one.steps == 0] == [20, 20, 20]


def test_missing_samples_are_one_line(config, folder):
    (folder / "samples/32-2.parquet").unlink()
    with pytest.raises(InputError, match=r"samples/32-2.parquet: no such file"):
        step_costs(records_of(config()), folder)
