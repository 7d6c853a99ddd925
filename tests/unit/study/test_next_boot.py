from __future__ import annotations

import dataclasses
import itertools

import pytest

from dsabench.config.runtime_kinds import boot_of
from dsabench.config.specs import StudyConfig
from dsabench.errors import InputError
from dsabench.model.record import Failed, Measured, Metric, Outcome
from dsabench.model.runtime import RuntimeSpec, refuse_nothing
from dsabench.model.space import legal
from dsabench.model.study_result import ScoredSetting
from dsabench.results.scores import judge, scored_settings
from dsabench.results.study_records import BootReservation, ReservedTrial, StudyRecords
from dsabench.study.budget import RunLimits, trials_left, why_confirmation_stops, why_search_stops
from dsabench.study.context import SettingRules
from dsabench.study.next_boot import (
    BootPlan,
    alternatives,
    challenger,
    choose_finalist,
    next_baseline_boot,
    next_confirm_boot,
    next_search_boot,
)
from dsabench.study.plan import foresee, make_dry_run, make_plan
from dsabench.study.proposers import Proposer, make_proposer
from dsabench.study.space_check import check_space
from dsabench.study.verdict import conclude
from factories import ENVIRONMENT, make_failure, make_record
from studies import SHARED, STUDY, load_study, make_context


@pytest.fixture
def config(tmp_path) -> StudyConfig:
    return load_study(tmp_path)


_minutes = itertools.count()


def take(
    ledger: StudyRecords,
    step: BootPlan,
    *,
    value: float = 100.0,
    outcome: Outcome | None = None,
    boot: str | None = None,
):
    """Record a step as if it had been measured."""
    boot = boot or f"boot-{next(_minutes)}"
    for errand in step.trials(ledger, 0):
        record = make_record(
            spec=errand.trial.runtime,
            workload=errand.trial.workload,
            occasion=errand.occasion,
            phase=errand.phase,
            boot=boot,
            value=value,
            outcome=outcome,
            minute=next(_minutes),
        )
        ledger.add(record)


def next_boot(ledger: StudyRecords, proposer: Proposer, trials_left: int | None = None) -> BootPlan | None:
    return next_baseline_boot(ledger, 0, trials_left) or next_search_boot(ledger, 0, proposer, trials_left)


def search_all(ledger: StudyRecords, values) -> list[BootPlan]:
    steps = []
    strategy = make_proposer(ledger.config)
    for value in values:
        step = next_boot(ledger, strategy)
        if step is None:
            break
        steps.append(step)
        take(ledger, step, value=value)
    return steps


def test_the_default_comes_first_then_every_setting_once(config) -> None:
    ledger = StudyRecords(config, ENVIRONMENT.fingerprint, ())
    steps = search_all(ledger, itertools.repeat(100.0, 99))
    assert steps[0].label == "default"
    assert len(steps) == len({step.spec.id for step in steps}) == 4
    assert all(len(step.workloads) == 2 for step in steps)
    assert [one.label for one in foresee(StudyRecords(config, ENVIRONMENT.fingerprint, ()), 0, 4)] == [
        s.label for s in steps
    ]


def test_an_interrupted_setting_is_finished_before_another_begins(config) -> None:
    ledger = StudyRecords(config, ENVIRONMENT.fingerprint, ())
    search_all(ledger, [100.0])
    step = next_boot(ledger, make_proposer(config))
    assert step is not None
    take(ledger, BootPlan(step.spec, step.workloads[:1], step.phase, step.label))
    rest = next_boot(ledger, make_proposer(config))
    assert rest is not None
    assert (rest.spec, rest.workloads) == (step.spec, step.workloads[1:])


def test_a_limit_of_one_trial_measures_one(config) -> None:
    ledger = StudyRecords(config, ENVIRONMENT.fingerprint, ())
    step = next_boot(ledger, make_proposer(config), 1)
    assert step is not None
    assert [workload.name for workload in step.workloads] == ["one"]
    assert next_boot(ledger, make_proposer(config), 0) == next_boot(ledger, make_proposer(config)), (
        "there is one, though no trial is left"
    )


def test_a_failed_setting_is_no_challenger_and_is_not_tried_again(config) -> None:
    ledger = StudyRecords(config, ENVIRONMENT.fingerprint, ())
    search_all(ledger, [100.0])
    step = next_boot(ledger, make_proposer(config))
    assert step is not None
    take(ledger, step, outcome=make_failure())
    following = next_boot(ledger, make_proposer(config))
    assert following is not None
    assert following.spec != step.spec
    assert challenger(ledger, 0) is None
    assert [one.score.value for one in scored_settings(ledger, 0)] == [pytest.approx(100.0), None]


def test_the_challenger_is_the_best_feasible_setting_but_the_default(config, tmp_path) -> None:
    ledger = StudyRecords(config, ENVIRONMENT.fingerprint, ())
    steps = search_all(ledger, [500.0, 90.0, 120.0, 110.0])
    best = challenger(ledger, 0)
    assert best is not None
    assert best.spec == steps[2].spec

    bounded = load_study(
        tmp_path, STUDY.replace("maximize}", "maximize, constraints: [{metric: ttft_ms.p50, max: 10}]}")
    )
    guarded = StudyRecords(bounded, ENVIRONMENT.fingerprint, ())
    for throughput, ttft in ((100.0, 5.0), (900.0, 11.0), (120.0, 9.0), (110.0, 1.0)):
        step = next_boot(guarded, make_proposer(bounded))
        assert step is not None
        metrics = {"output_throughput_tok_s": Metric(value=throughput, n=9), "ttft_ms.p50": Metric(value=ttft, n=9)}
        take(guarded, step, outcome=Measured(metrics=metrics))
    winner = challenger(guarded, 0)
    assert winner is not None
    assert winner.score.value == pytest.approx(120.0)
    excluded = scored_settings(guarded, 0)[1].score
    assert not excluded.is_feasible
    assert "ttft_ms.p50 11 is outside 10" in (excluded.why_not or "")


def test_best_and_default_take_turns_and_the_verdict_uses_these_boots_alone(config) -> None:
    ledger = StudyRecords(config, ENVIRONMENT.fingerprint, ())
    search_all(ledger, [100.0, 900.0, 120.0, 110.0])
    best = challenger(ledger, 0)
    assert best is not None
    order = []
    values = iter([100.0, 110.0, 111.0, 101.0])
    while (step := next_confirm_boot(ledger, 0, best.spec)) is not None:
        order.append("default" if step.spec == config.default else "best")
        take(ledger, step, value=next(values))
    assert order == ["default", "best", "best", "default"]
    for verdict in judge(ledger, best.spec, 0).verdicts:
        assert (verdict.n_base, verdict.n_candidate) == (2, 2)
        assert verdict.effect == pytest.approx(0.0995, abs=1e-3)


def test_confirmation_goes_on_in_the_middle(config) -> None:
    ledger = StudyRecords(config, ENVIRONMENT.fingerprint, ())
    search_all(ledger, [100.0, 900.0, 120.0, 110.0])
    best = challenger(ledger, 0)
    assert best is not None
    first = next_confirm_boot(ledger, 0, best.spec)
    assert first is not None
    take(ledger, BootPlan(first.spec, first.workloads[:1], "confirm", ""))
    again = next_confirm_boot(ledger, 0, best.spec)
    assert again is not None
    assert (again.spec, again.workloads) == (first.spec, first.workloads[1:])


def test_boots_kept_for_the_confirmation_end_the_search(tmp_path) -> None:
    config = load_study(tmp_path, STUDY.replace("max_trials: 6", "max_boots: 6"))
    ledger = StudyRecords(config, ENVIRONMENT.fingerprint, ())
    limits = RunLimits(config.budget, 0)
    plan = make_plan(ledger, limits, check_space(config, refuse_nothing))
    assert (plan.search_boots, plan.confirm_boots, plan.trials_total) == (2, 4, 12)
    search_all(ledger, [100.0])
    assert why_search_stops(ledger, limits) is None
    search_all(ledger, [100.0])
    assert "6 boots are the limit" in (why_search_stops(ledger, limits) or "")
    assert why_confirmation_stops(ledger, limits) is None


def test_failures_say_what_failed(config) -> None:
    ledger = StudyRecords(config, ENVIRONMENT.fingerprint, ())
    step = next_boot(ledger, make_proposer(config))
    assert step is not None
    take(ledger, step, outcome=Failed(stage="boot", fault="out_of_memory", message="no"))
    assert scored_settings(ledger, 0)[0].score.why_not == "one: boot: out_of_memory"


def test_a_failed_boot_is_paid_once_though_each_workload_has_its_record(config) -> None:
    ledger = StudyRecords(config, ENVIRONMENT.fingerprint, ())
    step = next_boot(ledger, make_proposer(config))
    assert step is not None
    failed = StudyRecords(config, ENVIRONMENT.fingerprint, ())
    take(failed, step, outcome=Failed(stage="boot", fault="out_of_memory", message="no"))
    for record in failed.records:
        ledger.add(record.model_copy(update={"boot_s": None, "duration_s": 70.0}))
    scored = scored_settings(ledger, 0)[0]
    assert len(ledger.records) == 2
    assert (scored.fault, scored.boot_s, scored.trials_s) == ("out_of_memory", 70.0, 0.0)


def test_a_fault_that_waits_for_its_retry_does_not_use_up_the_budget(config) -> None:
    ledger = StudyRecords(config, ENVIRONMENT.fingerprint, ())
    limits = RunLimits(config.budget.model_copy(update={"max_trials": 2}), 0)
    step = next_boot(ledger, make_proposer(config), trials_left(ledger, limits))
    assert step is not None
    take(ledger, step, outcome=make_failure(transient=True))
    assert trials_left(ledger, limits) == 2
    again = next_boot(ledger, make_proposer(config), trials_left(ledger, limits))
    assert again is not None
    assert again.spec == step.spec
    take(ledger, again)
    assert trials_left(ledger, limits) == 0


FIRST = "first: [{chunked_prefill_size: 128}, {prefill_backend: flashmla_sparse}]\n"


def test_listed_settings_come_first_and_in_their_order(tmp_path) -> None:
    config = load_study(tmp_path, STUDY.replace("budget: {max_trials: 6", FIRST + "budget: {max_trials: 8"))
    ledger = StudyRecords(config, ENVIRONMENT.fingerprint, ())
    ahead = [one.label for one in foresee(ledger, 0, 4)]
    steps = search_all(ledger, [100.0, 90.0, 95.0, 80.0, 70.0])
    assert ahead == [step.label for step in steps]
    assert ahead[:3] == ["default", "chunked_prefill_size=128", "prefill_backend=flashmla_sparse"]
    assert len(set(ahead)) == 4


def test_a_listed_setting_is_measured_once(tmp_path) -> None:
    config = load_study(tmp_path, STUDY.replace("budget: ", "first: [{chunked_prefill_size: 256}]\nbudget: "))
    ledger = StudyRecords(config, ENVIRONMENT.fingerprint, ())
    steps = search_all(ledger, [100.0] * 6)
    assert len({step.label for step in steps}) == len(steps) == 4


def test_what_is_left_shrinks_with_every_boot_to_nothing(tmp_path) -> None:
    config = load_study(tmp_path)
    ledger = StudyRecords(config, ENVIRONMENT.fingerprint, ())
    limits, space = RunLimits(config.budget, 0), check_space(config, refuse_nothing)

    def rest() -> tuple[int, int]:
        found = make_dry_run(ledger, limits, space, SettingRules(), "1").left
        return found.boots, found.trials

    plan = make_plan(ledger, limits, space)
    planned = plan.boots_total, plan.trials_total
    left = [rest()]
    strategy = make_proposer(config)
    while trials_left(ledger, limits) and (step := next_boot(ledger, strategy, trials_left(ledger, limits))):
        take(ledger, step)
        left.append(rest())
    best = challenger(ledger, 0)
    assert best is not None
    while step := next_confirm_boot(ledger, 0, best.spec):
        take(ledger, step)
        left.append(rest())
    assert left == [(planned[0] - done, planned[1] - 2 * done) for done in range(planned[0] + 1)]


def test_half_a_boot_is_left_of_an_interrupted_setting(tmp_path) -> None:
    config = load_study(tmp_path)
    ledger = StudyRecords(config, ENVIRONMENT.fingerprint, ())
    limits, space = RunLimits(config.budget, 0), check_space(config, refuse_nothing)
    step = next_boot(ledger, make_proposer(config))
    assert step is not None
    take(ledger, BootPlan(step.spec, step.workloads[:1], step.phase, step.label))
    plan, found = make_plan(ledger, limits, space), make_dry_run(ledger, limits, space, SettingRules(), "1").left
    assert (found.boots, found.trials) == (plan.boots_total, plan.trials_total - 1)


def book(ledger: StudyRecords, step: BootPlan) -> StudyRecords:
    """The ledger of another process while the step is under way."""
    trials = [
        ReservedTrial(trial=errand.trial.id, occasion=errand.occasion, turn=errand.turn)
        for errand in step.trials(ledger, 0)
    ]
    booking = BootReservation(machine="here", spec=step.spec, phase=step.phase, round=0, trials=tuple(trials))
    return StudyRecords(ledger.config, ENVIRONMENT.fingerprint, ledger.records, (*ledger.reservations, booking))


def test_what_is_under_way_elsewhere_is_not_begun_again(config) -> None:
    ledger, strategy = StudyRecords(config, ENVIRONMENT.fingerprint, ()), make_proposer(config)
    labels = []
    while (step := next_boot(ledger, strategy)) is not None:
        labels.append(step.label)
        ledger = book(ledger, step)
    assert labels[0] == "default"
    assert len(labels) == len(set(labels)) == ledger.boots(0) == 4
    assert trials_left(ledger, RunLimits(config.budget.model_copy(update={"max_trials": 6}), 0)) == 0


def test_confirming_boots_under_way_count_as_turns(config) -> None:
    ledger = StudyRecords(config, ENVIRONMENT.fingerprint, ())
    search_all(ledger, (100.0, 120.0, 110.0))
    best, taken = challenger(ledger, 0), []
    while (step := next_confirm_boot(ledger, 0, best.spec)) is not None:
        taken.append((step.label == "default", [errand.occasion for errand in step.trials(ledger, 0)]))
        ledger = book(ledger, step)
    assert [is_default for is_default, _ in taken] == [True, False, False, True]
    assert [occasions for _, occasions in taken] == [[1, 1], [1, 1], [2, 2], [2, 2]]


def test_settings_of_first_are_confirmed_in_the_same_turns_and_held_against_the_best(tmp_path) -> None:
    text = STUDY.replace("confirm_boots: 2", "confirm_boots: 2, confirm_first: true, max_boots: 10")
    first = "first: [{prefill_backend: flashmla_sparse}, {chunked_prefill_size: 128}]\n"
    config = load_study(tmp_path, text + first)
    ledger = StudyRecords(config, ENVIRONMENT.fingerprint, ())
    search_all(ledger, (100.0, 120.0, 110.0, 130.0))
    best, labels = challenger(ledger, 0), []
    while (step := next_confirm_boot(ledger, 0, best.spec)) is not None:
        labels.append(step.label)
        take(ledger, step, value={"default": 100.0, best.label: 130.0}.get(step.label, 110.0) + len(labels) / 100)
    assert labels == [*labels[:4], *reversed(labels[:4])]
    assert (labels[0], labels[3]) == ("default", best.label)
    assert set(labels[1:3]) == {"prefill_backend=flashmla_sparse", "chunked_prefill_size=128"}
    assert config.boots_to_confirm == 8
    result = conclude(ledger, make_context(config, tmp_path / "results"))
    assert result.left.boots == 0
    assert [rival.label for rival in result.rivals] == labels[1:3]
    for rival in result.rivals:
        assert all(verdict.n_base == verdict.n_candidate == 2 for verdict in rival.verdicts)
        assert {round(verdict.effect, 1) for verdict in rival.verdicts} == {0.2}


def test_the_best_that_computes_the_same_is_confirmed_beside_a_best_that_may_change_answers(tmp_path) -> None:
    config = load_study(
        tmp_path, STUDY.replace("confirm_boots: 2", "confirm_boots: 2, confirm_exact: true, max_boots: 10")
    )
    ledger = StudyRecords(config, ENVIRONMENT.fingerprint, ())
    steps = search_all(ledger, (100.0, 110.0, 120.0, 130.0))
    values = {step.label: value for step, value in zip(steps, (100.0, 110.0, 120.0, 130.0), strict=True)}
    best = challenger(ledger, 0)
    assert "prefill_backend=flashmla_sparse" in best.label
    labels = []
    while (step := next_confirm_boot(ledger, 0, best.spec)) is not None:
        labels.append(step.label)
        take(ledger, step, value=values[step.label] + len(labels) / 100)
    exact = "chunked_prefill_size=128"  # another chunk moves work in time
    assert labels == ["default", exact, best.label, best.label, exact, "default"]
    assert config.boots_to_confirm == 6
    result = conclude(ledger, make_context(config, tmp_path / "results"))
    assert [rival.label for rival in result.rivals] == [exact]
    assert result.left.boots == 0
    # Of a best setting that is exact itself there is nothing to add.
    assert alternatives(ledger, 0, config.spec({"chunked_prefill_size": 128})) == []


@pytest.mark.parametrize("second_wins", [False, True])
def test_of_two_that_are_confirmed_the_better_one_wins(tmp_path, second_wins) -> None:
    text = STUDY.replace("confirm_boots: 2", "confirm_boots: 3, confirm_second: true, max_boots: 14")
    config = load_study(tmp_path, text)
    assert config.boots_to_confirm == 9
    ledger = StudyRecords(config, ENVIRONMENT.fingerprint, ())
    steps = search_all(ledger, (100.0, 110.0, 120.0, 130.0))
    second, best = steps[2].label, steps[3].label
    values = {"default": 100.0, best: 130.0, second: 140.0 if second_wins else 120.0}
    order = []
    while (step := next_confirm_boot(ledger, 0, choose_finalist(ledger, 0).spec)) is not None:
        order.append(step.label)
        take(ledger, step, value=values[step.label] + len(order) / 100)
    assert order == [*("default", second, best), *(best, second, "default"), *("default", second, best)]
    result = conclude(ledger, make_context(config, tmp_path / "results"))
    winner, other = (second, best) if second_wins else (best, second)
    assert result.best.label == winner
    assert [rival.label for rival in result.rivals] == [other]
    assert result.level == pytest.approx(0.025)
    assert {(one.n_base, one.n_candidate) for one in result.verdicts} == {(3, 3)}
    assert result.left.boots == 0


def test_a_second_that_was_not_wholly_confirmed_does_not_win(tmp_path) -> None:
    config = load_study(
        tmp_path, STUDY.replace("confirm_boots: 2", "confirm_boots: 2, confirm_second: true, max_boots: 10")
    )
    ledger = StudyRecords(config, ENVIRONMENT.fingerprint, ())
    best = search_all(ledger, (100.0, 110.0, 120.0, 130.0))[3].label
    for _ in range(4):  # the best has its two boots, the second one of them
        step = next_confirm_boot(ledger, 0, choose_finalist(ledger, 0).spec)
        take(ledger, step, value=100.0 if step.label == best else 150.0)
    assert conclude(ledger, make_context(config, tmp_path / "results")).best.label == best


def test_confirming_what_first_lists_takes_room(tmp_path) -> None:
    first = "first: [{prefill_backend: flashmla_sparse}]\n"
    text = STUDY.replace("confirm_boots: 2", "confirm_boots: 2, confirm_first: true, max_boots: 6") + first
    with pytest.raises(InputError, match=r"budget.max_boots: 6 leaves no boot for the search: 3 × confirm_boots = 6"):
        load_study(tmp_path, text)
    with pytest.raises(InputError, match=r"budget.confirm_first: there is no setting in `first` to confirm"):
        load_study(tmp_path, text.replace(first, "").replace("max_boots: 6", "max_boots: 9"))


@pytest.mark.parametrize("kind", ["grid", "random", "coordinate", "tpe", "gp"])
def test_a_lane_stays_on_its_boot_though_another_began_and_ended_a_setting_later(tmp_path, kind) -> None:
    config = load_study(tmp_path, SHARED.replace("kind: grid", f"kind: {kind}"))
    ledger, strategy = StudyRecords(config, ENVIRONMENT.fingerprint, ()), make_proposer(config)
    search_all(ledger, [100.0])
    own = next_boot(ledger, strategy)
    assert own is not None
    take(ledger, own, boot="own")
    others = {one.id: one for one in map(config.spec, legal(config.space, config.default.knobs))}
    other = next(one for one in others.values() if boot_of(one) not in (boot_of(own.spec), boot_of(config.default)))
    take(ledger, BootPlan(other, own.workloads, "search", "other"), boot="other")
    here = StudyRecords(config, ENVIRONMENT.fingerprint, ledger.records, running=own.spec)
    stays = next_boot(here, strategy)
    assert stays is not None
    assert boot_of(stays.spec) == boot_of(own.spec)


def on_machine(ledger: StudyRecords, machine: str) -> StudyRecords:
    """The ledger as a process on that machine sees it."""
    ledger.machine = machine
    return ledger


def take_on(ledger: StudyRecords, step: BootPlan, machine: str, value: float, outcome: Outcome | None = None) -> None:
    """Record a step that was measured on a machine."""
    there = ENVIRONMENT.model_copy(update={"machine": machine})
    boot = f"boot-{next(_minutes)}"
    for planned in step.trials(ledger, 0):
        trial, at = planned.trial, next(_minutes)
        record = make_record(
            spec=trial.runtime, workload=trial.workload, occasion=planned.occasion, phase=planned.phase, boot=boot,
            value=value, outcome=outcome, minute=at,
        )  # fmt: skip
        ledger.add(record.model_copy(update={"environment": there, "turn": planned.turn}))


def test_on_another_machine_the_default_comes_first_and_settings_are_compared_by_it(config: StudyConfig) -> None:
    ledger = on_machine(StudyRecords(config, ENVIRONMENT.fingerprint, ()), "a")
    strategy = make_proposer(config)
    for value in (100.0, 110.0):
        take_on(ledger, next_boot(ledger, strategy), "a", value)
    on_machine(ledger, "b")
    baseline = next_boot(ledger, strategy)
    assert baseline is not None
    assert (baseline.spec, baseline.phase, baseline.label) == (config.default, "search", "default")
    assert [one.name for one in baseline.workloads] == [one.name for one in config.workloads]
    take_on(ledger, baseline, "b", 80.0)
    third = next_boot(ledger, strategy)
    assert third is not None
    assert third.spec != config.default
    take_on(ledger, third, "b", 96.0)
    # 96 where the default does 80 is as 120 where it does 100.
    values = {one.spec.id: one.score.value for one in scored_settings(ledger, 0)}
    assert values[config.default.id] == pytest.approx(100)
    assert values[third.spec.id] == pytest.approx(120)
    best = challenger(ledger, 0)
    assert best is not None
    assert best.spec == third.spec


def test_a_default_that_failed_on_a_machine_is_not_booted_there_again(config: StudyConfig) -> None:
    ledger = on_machine(StudyRecords(config, ENVIRONMENT.fingerprint, ()), "a")
    strategy = make_proposer(config)
    take_on(ledger, next_boot(ledger, strategy), "a", 100.0)
    on_machine(ledger, "b")
    take_on(ledger, next_boot(ledger, strategy), "b", 0.0, make_failure())
    step = next_boot(ledger, strategy)
    assert step is not None
    assert step.spec != config.default
    take_on(ledger, step, "b", 96.0)
    assert {one.spec.id: one.score.value for one in scored_settings(ledger, 0)}[step.spec.id] == pytest.approx(96)


def test_another_machine_that_has_nothing_to_search_needs_no_default(config: StudyConfig) -> None:
    ledger = on_machine(StudyRecords(config, ENVIRONMENT.fingerprint, ()), "a")
    strategy = make_proposer(config)
    while (step := next_boot(ledger, strategy)) is not None:
        take_on(ledger, step, "a", 100.0)
    assert next_boot(on_machine(ledger, "b"), strategy) is None


def searched_on_a(config: StudyConfig) -> tuple[StudyRecords, ScoredSetting]:
    """The default and a setting that is a fifth faster, both measured on machine a."""
    ledger = on_machine(StudyRecords(config, ENVIRONMENT.fingerprint, ()), "a")
    strategy = make_proposer(config)
    for value in (100.0, 120.0):
        take_on(ledger, next_boot(ledger, strategy), "a", value)
    best = challenger(ledger, 0)
    assert best is not None
    return ledger, best


def confirm_on(ledger: StudyRecords, best: RuntimeSpec, machine: str, boots: int) -> list[tuple[str, int | None]]:
    """Boot the next ones of the confirmation on a machine, the best setting a fifth faster; returns their (label, turn)."""
    told = []
    for _ in range(boots):
        step = next_confirm_boot(on_machine(ledger, machine), 0, best)
        assert step is not None
        told.append((step.label, step.turn))
        take_on(ledger, step, machine, 120.0 if step.spec == best else {"a": 100.0, "b": 50.0}[machine])
    return told


def test_a_pair_that_a_change_of_machines_cuts_in_two_begins_again(config: StudyConfig) -> None:
    config = config.model_copy(update={"budget": config.budget.model_copy(update={"confirm_boots": 3})})
    ledger, best = searched_on_a(config)
    first = confirm_on(ledger, best.spec, "a", 1)
    assert first == [("default", 0)]
    # On another machine the default's boot has no partner; the pairs after it are whole.
    rest = confirm_on(ledger, best.spec, "b", 6)
    assert sorted(rest, key=lambda one: (one[1], one[0] != "default")) == [
        (label, turn) for turn in range(3) for label in ("default", best.label)
    ]
    assert next_confirm_boot(ledger, 0, best.spec) is None
    verdict = next(one for one in judge(ledger, best.spec, 0).verdicts if one.workload == "one")
    assert (verdict.n_base, verdict.n_candidate) == (3, 3)
    assert verdict.effect == pytest.approx(120 / 50 - 1)


@pytest.mark.parametrize("first_to_end", [0, 1])
def test_lanes_that_begin_a_pair_again_begin_it_once(config: StudyConfig, first_to_end: int) -> None:
    config = config.model_copy(update={"budget": config.budget.model_copy(update={"confirm_boots": 3})})
    ledger, best = searched_on_a(config)
    confirm_on(ledger, best.spec, "a", 1)
    on_machine(ledger, "b")

    def taken(*under_way: BootPlan) -> BootPlan:
        seen = ledger
        for step in under_way:
            seen = on_machine(book(seen, step), "b")
        step = next_confirm_boot(seen, 0, best.spec)
        assert step is not None
        return step

    default = taken()
    other = taken(default)
    third = taken(default, other)
    fourth = taken(default, other, third)
    begun = [(step.label, step.turn) for step in (default, other, third, fourth)]
    assert begun == [("default", 0), (best.label, 0), (best.label, 1), ("default", 1)]
    ends, stays = [(default, other), (other, default)][first_to_end]
    take_on(ledger, ends, "b", 100.0)
    fifth = taken(stays, third, fourth)
    assert (fifth.label, fifth.turn) == ("default", 2)
    assert (taken(stays, third, fourth, fifth).label, taken(stays, third, fourth, fifth).turn) == (best.label, 2)


def test_a_pair_that_two_machines_have_begun_is_of_one_in_the_end(config: StudyConfig) -> None:
    ledger, best = searched_on_a(config)
    assert confirm_on(ledger, best.spec, "a", 1) == [("default", 0)]
    assert confirm_on(ledger, best.spec, "b", 1) == [("default", 0)]
    # The boot on b counts in place of the first one, so a has none.
    assert confirm_on(ledger, best.spec, "a", 2) == [("default", 0), (best.label, 0)]
    rest = confirm_on(ledger, best.spec, "a", 2 * config.budget.confirm_boots - 2)
    assert {turn for _, turn in rest} == set(range(1, config.budget.confirm_boots))
    assert next_confirm_boot(ledger, 0, best.spec) is None
    verdict = next(one for one in judge(ledger, best.spec, 0).verdicts if one.workload == "one")
    assert (verdict.n_base, verdict.n_candidate) == (config.budget.confirm_boots,) * 2


@pytest.mark.parametrize("loads", [1, 2])
def test_a_side_of_which_two_machines_have_a_load_each_is_measured_again(config: StudyConfig, loads: int) -> None:
    """The machine that comes back has the other one's load in its way, and keeps its own."""
    ledger, best = searched_on_a(config)
    step = next_confirm_boot(on_machine(ledger, "a"), 0, best.spec)
    assert step is not None
    take_on(ledger, step, "a", 100.0)
    began = next_confirm_boot(on_machine(ledger, "b"), 0, best.spec)
    assert began is not None
    take_on(ledger, dataclasses.replace(began, workloads=began.workloads[:loads]), "b", 50.0)
    back = next_confirm_boot(on_machine(ledger, "a"), 0, best.spec)
    assert back is not None
    assert (back.label, back.turn) == ("default", 0)
    assert [load.name for load in back.workloads] == [load.name for load in began.workloads[:loads]]


def test_a_whole_pair_of_another_machine_stays(config: StudyConfig) -> None:
    ledger, best = searched_on_a(config)
    assert [turn for _, turn in confirm_on(ledger, best.spec, "a", 2)] == [0, 0]
    assert [turn for _, turn in confirm_on(ledger, best.spec, "b", 2)] == [1, 1]
    assert next_confirm_boot(ledger, 0, best.spec) is None


OTHER_DTYPE = STUDY.replace("axes: {", "axes: {kv_cache_dtype: [fp8_e4m3, bfloat16], ").replace(
    "proposer:", "first: [{kv_cache_dtype: bfloat16}]\nproposer:"
)


def test_what_computes_otherwise_stands_beside_and_cannot_win(tmp_path) -> None:
    """A listed setting in another precision is measured, is told as unproven however fast it is, and no such one is proposed."""
    free = load_study(tmp_path, OTHER_DTYPE)
    bound = load_study(tmp_path, OTHER_DTYPE.replace("direction: maximize", "direction: maximize, numerics: same"))
    found = {}
    for name, study in (("free", free), ("bound", bound)):
        ledger = StudyRecords(study, ENVIRONMENT.fingerprint, ())
        steps = search_all(ledger, [100.0, 900.0, *itertools.repeat(110.0, 99)])
        best = challenger(ledger, 0)
        assert best is not None
        found[name] = ([one.label for one in steps], best.spec.knobs["kv_cache_dtype"])
        beside = scored_settings(ledger, 0)[1].score
        assert beside.value == pytest.approx(900.0)
        assert beside.why_not == (None if study is free else "accuracy unproven: kv_cache_dtype")
    assert found["free"][1] == "bfloat16"
    assert found["bound"][1] == "fp8_e4m3"
    assert len(found["free"][0]) == 8
    assert found["bound"][0][1] == "kv_cache_dtype=bfloat16"
    assert sum("bfloat16" in label for label in found["bound"][0]) == 1
    assert len(found["bound"][0]) == 5
    assert check_space(bound, refuse_nothing).settings == 4
