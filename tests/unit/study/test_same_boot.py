"""One boot for all settings that a running server can be changed to."""

from __future__ import annotations

import itertools
import math

import pytest

from dsabench.config.runtime_kinds import boot_of
from dsabench.model.runtime import refuse_nothing
from dsabench.model.space import key_of
from dsabench.model.topology import SINGLE
from dsabench.results.study_records import BootReservation, ReservedTrial, StudyRecords
from dsabench.study.budget import RunLimits, why_search_stops
from dsabench.study.landscape import Landscape, LandscapeHeader, LandscapeSetting
from dsabench.study.next_boot import observations
from dsabench.study.plan import foresee, make_plan
from dsabench.study.proposers import PROPOSERS, Observation, SearchTask, proposer_for, task_of
from dsabench.study.replay import replay, search
from dsabench.study.space_check import check_space
from factories import ENVIRONMENT, make_record
from studies import SHARED, load_study

KERNELS, CHUNKS, LIMITS = ("a", "b", "c"), (1, 2, 4), (2, 4, 8, 16)


def value_of(kernel: str, chunk: int, limit: int) -> float:
    return 100.0 * (1 + 0.3 * KERNELS.index(kernel)) * chunk**0.1 * math.exp(-0.1 * (limit - 8) ** 2 / 16)


LANDSCAPE = Landscape(
    header=LandscapeHeader(
        name="limits",
        base={"kernel": "a", "chunk": 1, "limit": 2},
        axes={"limit": LIMITS, "kernel": KERNELS, "chunk": CHUNKS},
        reload_free=("limit",),
    ),
    settings=tuple(
        LandscapeSetting(
            setting={"kernel": kernel, "chunk": chunk, "limit": limit},
            value=value_of(kernel, chunk, limit),
            boot_s=100.0,
            trials_s=10.0,
        )
        for kernel, chunk, limit in itertools.product(KERNELS, CHUNKS, LIMITS)
    ),
)
TASK = SearchTask(LANDSCAPE.header.space, LANDSCAPE.header.base, seed=1, settings=36, reload_free=frozenset({"limit"}))


def told(assignment) -> Observation:
    return Observation(assignment, value_of(**assignment), seconds=110.0, boot_s=100.0)


@pytest.mark.parametrize("kind", [kind for kind in PROPOSERS if not PROPOSERS[kind].weighs_boots])
def test_a_boot_is_used_for_all_its_settings_before_it_is_left(kind) -> None:
    proposer, history = proposer_for(kind, TASK), [told(TASK.base)]
    while (asked := proposer.ask(history)) is not None:
        history.append(told(asked))
    boots = [key for key, _ in itertools.groupby(TASK.boot_of(one.assignment) for one in history)]
    assert len(history) == len({key_of(one.assignment) for one in history}) == 36
    assert len(boots) == len(set(boots)) == 9


def test_a_failed_boot_has_no_other_settings_and_one_of_another_process_none_to_give() -> None:
    proposer = proposer_for("grid", TASK)
    sibling = {**TASK.base, "limit": 4}
    assert proposer.ask([told(TASK.base)]) == sibling
    assert proposer.ask([told(TASK.base), Observation({**TASK.base, "kernel": "b"}, None, fault="refused")]) == sibling
    failed = Observation({**TASK.base, "kernel": "b"}, None, fault="out_of_memory")
    under_way = Observation(sibling, None)
    for after in (failed, under_way):
        asked = proposer.ask([told(TASK.base), after])
        assert asked is not None
        assert TASK.boot_of(asked) not in {TASK.boot_of(TASK.base), TASK.boot_of(after.assignment)}


def test_a_strategy_that_weighs_boots_takes_the_cheap_setting_where_it_may_gain() -> None:
    """Boots take ten times what trials take, so that a good search has many settings a boot."""
    cheap = search(LANDSCAPE, "gp", 3, within=0.001, most=36)
    alone = LANDSCAPE.model_copy(update={"header": LANDSCAPE.header.model_copy(update={"reload_free": ()})})
    dear = search(alone, "gp", 3, within=0.001, most=36)
    assert cheap.regrets[-1] == dear.regrets[-1] == 0.0
    assert dear.boots[-1] == len(dear.boots)
    assert cheap.boots[-1] < len(cheap.boots)
    spent, spent_alone = cheap.seconds_to(0.001), dear.seconds_to(0.001)
    assert spent is not None
    assert spent_alone is not None
    assert spent < spent_alone


def test_a_replay_pays_for_each_boot_once() -> None:
    run = replay(LANDSCAPE, TASK, proposer_for("grid", TASK), within=-1.0, most=36)
    assert (run.boots[-1], run.seconds[-1]) == (9, 9 * 100.0 + 36 * 10.0)
    assert run.seconds[-1] == LANDSCAPE.seconds


def test_a_knob_that_is_no_axis_of_the_file_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="reload_free: depth is no axis"):
        LandscapeHeader(name="x", axes={"a": (1, 2)}, reload_free=("depth",))


@pytest.fixture
def config(tmp_path):
    return load_study(tmp_path, SHARED)


def test_settings_share_a_boot_where_they_name_the_same_reload_free_knobs(config) -> None:
    one, two = (config.spec({"pp_max_micro_batch_size": limit}) for limit in (1, 2))
    other = config.spec({"pp_max_micro_batch_size": 1, "chunked_prefill_size": 128})
    assert boot_of(one) == boot_of(two)
    assert boot_of(one) not in {boot_of(other), boot_of(config.default)}
    deployed = [spec.model_copy(update={"topology": SINGLE}) for spec in (one, two)]
    assert boot_of(deployed[0]) != boot_of(deployed[1])


@pytest.mark.parametrize("kind", PROPOSERS)
def test_a_boot_of_another_process_is_left_to_it(config, kind) -> None:
    """It will be used for all its settings, also while its owner chooses the next one of them."""
    records, task = StudyRecords(config, ENVIRONMENT.fingerprint, ()), task_of(config)
    for workload in config.workloads:
        records.add(make_record(spec=config.default, workload=workload, boot="default"))
    theirs = {"prefill_backend": "flashmla_sparse", "chunked_prefill_size": 128, "pp_max_micro_batch_size": 2}
    for workload in config.workloads:
        records.add(make_record(spec=config.spec(theirs), workload=workload, boot="theirs", minute=1))
    trials = (ReservedTrial(trial="measured", occasion=0),)
    held = BootReservation(machine="here", spec=config.spec(theirs), phase="search", round=0, trials=trials)
    history = observations(StudyRecords(config, ENVIRONMENT.fingerprint, records.records, [held]), 0)
    assert sum(one.is_under_way for one in history) == 2
    asked = proposer_for(kind, task).ask(history)
    assert asked is not None
    assert task.boot_of(asked) != task.boot_of(theirs)


def test_a_plan_counts_the_boots_and_those_that_are_saved(config) -> None:
    space = check_space(config, refuse_nothing)
    records, limits = StudyRecords(config, ENVIRONMENT.fingerprint, ()), RunLimits(config.budget, 0)
    plan = make_plan(records, limits, space)
    assert (space.settings, plan.search_settings, plan.search_boots, plan.boots_saved) == (13, 13, 5, 8)
    assert plan.trials_total == (13 + plan.confirm_boots) * 2
    ahead = [boot_of(one.spec) for one in foresee(records, 0, plan.search_settings)]
    assert (len(ahead), len([key for key, _ in itertools.groupby(ahead)])) == (13, 5)
    few = make_plan(records, RunLimits(config.budget.model_copy(update={"max_boots": 6}), 0), space)
    assert (few.search_boots, few.search_settings) == (2, 6)


def test_a_plan_begins_with_the_settings_of_the_default_boot(tmp_path) -> None:
    config = load_study(tmp_path, SHARED.replace("base: {", "base: {pp_max_micro_batch_size: 4, "))
    ahead = foresee(StudyRecords(config, ENVIRONMENT.fingerprint, ()), 0, 12)
    assert [boot_of(one.spec) for one in ahead[:4]] == [boot_of(config.default)] * 3 + [boot_of(ahead[3].spec)]
    assert boot_of(ahead[3].spec) != boot_of(config.default)


def test_a_boot_of_several_settings_counts_once(config) -> None:
    limits = RunLimits(config.budget.model_copy(update={"max_boots": 5}), 0)
    records, minute = StudyRecords(config, ENVIRONMENT.fingerprint, ()), itertools.count()
    for limit in (1, 2):
        spec = config.spec({"pp_max_micro_batch_size": limit})
        for workload in config.workloads:
            records.add(make_record(spec=spec, workload=workload, boot="shared", minute=next(minute)))
    assert records.boots(0, "search") == 1
    third = config.spec({"pp_max_micro_batch_size": 4})
    held = BootReservation(
        machine="here",
        spec=third,
        phase="search",
        round=0,
        trials=(ReservedTrial(trial="x", occasion=0),),
        goes_on=True,
    )
    both = StudyRecords(config, ENVIRONMENT.fingerprint, records.records, [held])
    assert both.boots(0, "search") == 1, "its boot was counted before"
    assert "max_boots" in (why_search_stops(both, limits) or "")
    assert why_search_stops(both, limits, 0) is None, "the running server takes no boot more"
