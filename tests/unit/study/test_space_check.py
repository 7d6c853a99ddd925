"""The rules are asked before a boot is spent."""

from __future__ import annotations

import json
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from dsabench.cli.show_plan import plan_facts, print_plan
from dsabench.config.specs import RuntimeConfig, StudyConfig
from dsabench.errors import InputError
from dsabench.model.record import Failed
from dsabench.model.runtime import Refuse, RuntimeSpec, SettingCheck, SettingNote, annotate_nothing
from dsabench.model.study import Axis, SearchSpace
from dsabench.results.journal import Journal
from dsabench.results.scores import scored_settings
from dsabench.results.study_records import StudyRecords
from dsabench.runtimes.command import Launch
from dsabench.sglang.runtime import SglangRuntime
from dsabench.study.budget import RunLimits, trials_left
from dsabench.study.context import SettingRules
from dsabench.study.next_boot import observations
from dsabench.study.plan import make_dry_run
from dsabench.study.proposers import Observation, make_proposer
from dsabench.study.session import SILENT
from dsabench.study.space_check import check_overruled, check_space, require_legal_default
from dsabench.study.study import measure
from factories import ENVIRONMENT, make_record
from studies import STUDY, load_study, make_context

BASE = {
    "tp_size": 8,
    "kv_cache_dtype": "fp8_e4m3",
    "prefill_backend": "flashmla_kv",
    "decode_backend": "flashmla_kv",
}


def check(spec: RuntimeSpec) -> SettingCheck:
    (checked,) = SglangRuntime(Launch()).check((spec,), "0.5.16")
    return checked


RULES = SettingRules(lambda spec: check(spec).refusal, annotate=lambda spec: check(spec).notes)
FORBIDDEN = {"tp_size": 8, "kv_cache_dtype": "fp8_e4m3", "decode_backend": "flashmla_auto"}


@pytest.fixture
def refuse() -> Refuse:
    return RULES.refuse


@pytest.fixture
def config(tmp_path) -> StudyConfig:
    """Half of its four points have `flashmla_auto` for decode, which BE19 forbids."""
    axes = (
        Axis(name="decode_backend", values=("flashmla_kv", "flashmla_auto")),
        Axis(name="chunked_prefill_size", values=(8192, 16384)),
    )
    return sglang_study(tmp_path, axes)


def sglang_study(folder: Path, axes: tuple[Axis, ...], **base: bool | str | float) -> StudyConfig:
    runtime = RuntimeConfig(
        kind="sglang", model="deepseek-ai/DeepSeek-V3.2", version="0.5.16", hardware="h200", base={**BASE, **base}
    )
    study = load_study(folder)
    changes = {"runtime": runtime, "space": SearchSpace(axes=axes), "workloads": study.workloads[:1]}
    return study.model_copy(update=changes)


def test_the_check_counts_by_rule(config, refuse) -> None:
    found = check_space(config, refuse)
    assert (found.asked, found.refused, dict(found.by_rule), found.is_whole) == (4, 2, {"BE19": 2}, True)
    assert found.lines["BE19"].startswith("BE19: ")


def test_points_that_would_boot_as_something_else_are_counted(tmp_path, refuse) -> None:
    """A page size that DSA sets back to 64 makes every boot of it a second one of the same setting."""

    def annotate(spec: RuntimeSpec) -> tuple[SettingNote, ...]:
        asked = spec.knobs.get("page_size", 64)
        return (
            () if asked == 64 else (SettingNote("page_size", f"page_size: asked {asked}, runs with 64", replaced=True),)
        )

    kernels = Axis(name="decode_backend", values=("flashmla_kv", "flashmla_auto"))
    axes = (kernels, Axis(name="page_size", values=(64, 128)))
    study = sglang_study(tmp_path, axes)
    found = check_overruled(study, check_space(study, refuse).passed, annotate)
    assert (found.asked, found.points, dict(found.by_rule)) == (2, 1, {"page_size": 1})
    assert found.lines["page_size"] == "page_size: asked 128, runs with 64"

    everywhere = sglang_study(tmp_path, (kernels,), page_size=128)
    passed = check_space(everywhere, refuse).passed
    assert check_overruled(everywhere, passed, annotate).points == 0
    assert check_overruled(everywhere, passed, annotate_nothing).asked == 0


def test_a_default_that_the_rules_forbid_is_the_users_mistake(tmp_path, refuse) -> None:
    config = sglang_study(tmp_path, (), decode_backend="flashmla_auto")
    with pytest.raises(InputError, match=r"^runtime\.base: BE19: .*Unsupported"):
        require_legal_default(config, refuse)


def test_the_first_error_is_the_refusal(tmp_path, refuse) -> None:
    refusal = refuse(sglang_study(tmp_path, (), decode_backend="flashmla_auto").default)
    assert refusal is not None
    assert refusal.rule == "BE19"
    assert refusal.line.startswith("BE19: ")


async def test_a_forbidden_point_is_recorded_without_a_boot_and_not_proposed_again(config, refuse, tmp_path) -> None:
    measured = [
        make_record(spec=config.spec({"chunked_prefill_size": size}), workload=config.workloads[0], value=value)
        for size, value in ((8192, 90.0), (16384, 110.0))
    ]
    legal = make_record(spec=config.default, workload=config.workloads[0])
    spelled = [
        make_record(spec=config.spec({**BASE, "chunked_prefill_size": size}), workload=config.workloads[0])
        for size in (8192, 16384)
    ]
    budget = config.budget.model_copy(update={"confirm_boots": 0, "max_trials": None, "max_boots": None})
    config = config.model_copy(update={"budget": budget})
    context = make_context(
        config,
        tmp_path / "results",
        list({one.key: one for one in (*measured, legal, *spelled)}.values()),
        refuse=refuse,
    )
    boots = context.records().boots(0)
    result = await measure(context, SILENT)

    ledger = context.records()
    refused = [record for record in Journal(tmp_path / "results").read().records if record.is_refusal]
    assert len(refused) == result.measured_now == 2
    for record in refused:
        assert isinstance(record.outcome, Failed)
        assert (record.outcome.stage, record.outcome.fault) == ("plan", "illegal_config")
        assert record.outcome.message.startswith("BE19: ")
        assert record.trial.runtime.knobs["decode_backend"] == "flashmla_auto"
    assert ledger.boots(0) == boots
    assert make_proposer(config).ask(observations(ledger, 0)) is None
    assert [one.score.why_not for one in scored_settings(ledger, 0) if one.score.value is None] == [
        "one: plan: illegal_config"
    ] * 2


def test_refused_points_take_neither_trials_nor_boots_of_the_budget(config, refuse) -> None:
    outcome = Failed(stage="plan", fault="illegal_config", message="BE19: …")
    spec = config.spec({"decode_backend": "flashmla_auto", "chunked_prefill_size": 8192})
    record = make_record(spec=spec, workload=config.workloads[0], outcome=outcome)
    ledger = StudyRecords(config, ENVIRONMENT.fingerprint, [record])
    assert trials_left(ledger, RunLimits(config.budget.model_copy(update={"max_trials": 2}), 0)) == 2
    assert ledger.boots(0) == 0


def test_the_plan_says_what_is_refused(config, refuse) -> None:
    ledger = StudyRecords(config, ENVIRONMENT.fingerprint, ())
    space = check_space(config, refuse)
    assert space.settings == 3  # the default has no chunk size, so it is none of the four points
    dry_run = make_dry_run(ledger, RunLimits(config.budget, 0), space, SettingRules(refuse), "0.5.16")
    assert sum(one.refusal is None for one in dry_run.upcoming) == 3
    assert {one.refusal.rule for one in dry_run.upcoming if one.refusal} == {"BE19"}

    console = Console(file=StringIO(), width=100)
    print_plan(console, dry_run)
    text = " ".join(console.file.getvalue().split())
    assert "default deepseek-ai/DeepSeek-V3.2: kv_cache_dtype=fp8_e4m3 " in text
    assert "--tp-size 8" in text or "--tp 8" in text
    assert "axes decode_backend: flashmla_kv, flashmla_auto chunked_prefill_size: 8192, 16384" in text
    assert "never runs decode_backend=flashmla_auto (2 points): BE19: " in text
    assert "objective maximize output_throughput_tok_s" in text
    assert "loads one: 12 prompts of random-ids, 48 tokens in, 4 tokens out, 2 at once" in text
    assert "at the end the best setting and the default are booted 2 times each, in turns" in text
    assert "2 of 4 points are refused by the rules, without a boot: BE19 2" in text
    assert "refused decode_backend=flashmla_auto" in text


def test_the_plan_says_what_the_rules_say_of_the_default(config) -> None:
    """Without CUDA graphs, which costs; and with a page size that is set back."""
    runtime = config.runtime.model_copy(update={"base": {**BASE, "cuda_graph": False, "page_size": 128}})
    config = config.model_copy(update={"runtime": runtime})
    ledger = StudyRecords(config, ENVIRONMENT.fingerprint, ())
    plan = make_dry_run(ledger, RunLimits(config.budget, 0), check_space(config, RULES.refuse), RULES, "0.5.16")
    console = Console(file=StringIO(), width=300)
    print_plan(console, plan)
    notes = [line for line in console.file.getvalue().splitlines() if line.startswith("the default: ")]
    assert any(line.startswith("the default: FL09: no CUDA graphs") for line in notes)
    assert len(notes) == len(plan_facts(plan)["notes"]) > 1


def test_the_plan_for_machines_says_it_too(config, refuse) -> None:
    ledger = StudyRecords(config, ENVIRONMENT.fingerprint, ())
    dry_run = make_dry_run(
        ledger, RunLimits(config.budget, 0), check_space(config, refuse), SettingRules(refuse), "0.5.16"
    )
    plan = json.loads(json.dumps(plan_facts(dry_run)))
    lines = plan["refused"].pop("lines")
    assert plan["refused"] == {"points": 2, "asked": 4, "all_asked": True, "by_rule": {"BE19": 2}}
    assert lines["BE19"].startswith("BE19: ")
    values = ["flashmla_kv", "flashmla_auto"]
    assert plan["axes"][0] == {"knob": "decode_backend", "values": values, "when": {}, "when_bound": None}
    assert [(one["knob"], one["value"], one["rule"]) for one in plan["never_runs"]] == [
        ("decode_backend", "flashmla_auto", "BE19")
    ]
    assert plan["objective"] == {"metric": "output_throughput_tok_s", "direction": "maximize", "numerics": "any"}
    assert "sglang" in plan["baseline_command"][0]
    assert (plan["constraints"], plan["seconds"] > 0) == ([], True)
    said = [setting["refused"] for setting in plan["settings"] if setting["refused"]]
    assert said
    assert all(line.startswith("BE19: ") for line in said)


def test_a_space_too_large_to_list_is_drawn_from(tmp_path, refuse) -> None:
    axes = (
        Axis(name="decode_backend", values=("flashmla_kv", "flashmla_auto")),
        Axis(name="max_running_requests", values=tuple(range(1, 2001))),
    )
    found = check_space(sglang_study(tmp_path, axes), refuse)
    assert not found.is_whole
    assert found.asked == 2000
    assert 0.45 < found.refused / found.asked < 0.55


def test_the_estimator_learns_to_stay_away_from_what_is_refused(tmp_path) -> None:
    """One kernel of two is refused wherever it was tried: it is asked for less often than the other."""
    axes = (
        Axis(name="decode_backend", values=("flashmla_kv", "flashmla_auto")),
        Axis(name="chunked_prefill_size", values=tuple(range(1024, 65 * 1024, 1024))),
    )
    config = sglang_study(tmp_path, axes)
    config = config.model_copy(update={"proposer": config.proposer.model_copy(update={"kind": "tpe"})})
    known = [
        Observation({"decode_backend": kernel, "chunked_prefill_size": size * 1024}, value)
        for size in range(1, 13)
        for kernel, value in (("flashmla_kv", 100.0 + size), ("flashmla_auto", None))
    ]
    asked = []
    for _ in range(12):
        proposal = make_proposer(config).ask(known)
        assert proposal is not None
        asked.append(proposal["decode_backend"])
        known.append(Observation(proposal, 100.0 if asked[-1] == "flashmla_kv" else None))
    assert asked.count("flashmla_auto") <= 3


async def test_a_real_sweep_boots_what_is_legal_alone(tmp_path, refuse) -> None:
    text = STUDY.replace(
        "  - {name: two, dataset: random-ids, input_len: 96, output_len: 4, num_prompts: 12, max_concurrency: 4}\n", ""
    )
    text = text.replace("prefill_backend: [flashmla_kv, flashmla_sparse], ", "").replace(
        "confirm_boots: 2", "confirm_boots: 0"
    )
    config = load_study(tmp_path, text)

    def small_chunks(spec):
        """What rules say of another runtime's page size, put to this one's chunk size."""
        pages = spec.model_copy(update={"kind": "sglang", "model": "v3.2", "hardware": "h200", "knobs": FORBIDDEN})
        return refuse(pages) if spec.knobs["chunked_prefill_size"] == 128 else None

    context = make_context(config, tmp_path / "results", refuse=small_chunks)
    result = await measure(context, SILENT)
    outcomes = {record.trial.runtime.knobs["chunked_prefill_size"]: record.outcome.kind for record in result.records}
    assert outcomes == {256: "measured", 128: "failed"}
    assert context.records().boots(0) == 1
