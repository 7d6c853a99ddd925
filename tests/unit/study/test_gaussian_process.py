"""The process behind `gp`: its gradient, its memory of what it was told, and its choice."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from optuna import create_study
from optuna.trial import TrialState

from dsabench.model.space import key_of, legal
from dsabench.model.study import Assignment, SearchSpace
from dsabench.study.proposers import PROPOSERS, Observation, SearchTask, proposer_for
from dsabench.study.proposers.failure_rules import FAMILY
from dsabench.study.proposers.gaussian_process import Floats, Scales, SettingKernel, _Misfit, fit_process
from dsabench.study.proposers.gp_choice import KnownSettings, _log_improvement, log_expected_gain
from dsabench.study.proposers.gp_sampler import LegalSettingsSampler
from dsabench.study.proposers.legal_settings import LegalSettings
from dsabench.study.proposers.optuna_trials import suggest

SPACE = SearchSpace.model_validate(
    {
        "axes": [
            {"name": "size", "values": [1, 2, 4, 8]},
            {"name": "attention", "values": [False, True]},
            {"name": "draft", "values": ["off", "on"]},
            {"name": "steps", "values": [3, 1, 2]},
            {"name": "tokens", "values": [2, 3, 4]},
            {"name": "kernel", "values": ["p", "q", "r"]},
        ],
        "when": {"steps": {"draft": "on"}, "tokens": {"draft": "on"}},
        "forbid": [
            {"size": 1, "attention": True},
            *({"size": size, "attention": False} for size in (2, 4, 8)),
            *({"steps": steps, "tokens": tokens} for steps in (1, 2, 3) for tokens in (2, 3, 4) if tokens != steps + 1),
        ],
    }
)
LEGAL = LegalSettings(SPACE, {})


def seconds_of(settings: int) -> tuple[Floats, Floats]:
    """The same seconds for all, nine tenths of them for the boot."""
    return np.full(settings, 100.0), np.full(settings, 90.0)


def test_an_axis_that_follows_from_another_counts_once() -> None:
    kernel = SettingKernel.of_space(SPACE, LEGAL.codes)
    assert [SPACE.axes[column].name for column in kernel.columns] == ["size", "draft", "steps", "kernel"]


def test_numbers_are_compared_by_rank_and_others_by_equality() -> None:
    kernel = SettingKernel.of_space(SPACE, LEGAL.codes)
    size, _, steps, of_kernel = kernel.distances
    assert size[0, 1] == size[2, 3] == pytest.approx(1 / 3)
    assert steps[0, 1] == 1.0  # 3 and 1
    assert steps[0, -1] == 1.0  # inactive
    assert steps[-1, -1] == 0.0
    assert of_kernel[0, 1] == of_kernel[0, 2] == 1.0


def test_the_covariance_is_a_sum_over_axes_and_pairs_and_a_product_of_all() -> None:
    kernel = SettingKernel.of_space(SPACE, LEGAL.codes)
    scales = Scales(np.array([0.3, 0.2, 0.4, 0.1]), 1.5, 0.7, 0.6, 0.0)
    levels = kernel.levels(LEGAL.codes)
    found = kernel.covariance(levels, levels, scales).whole
    for one, other in itertools.combinations_with_replacement(range(0, len(levels), 7), 2):
        alike = []
        for column, distances, ordered in zip(kernel.columns, kernel.distances, kernel.ordered, strict=True):
            distance = distances[LEGAL.codes[one, column], LEGAL.codes[other, column]]
            alike.append(math.exp(-1.5 * distance) if ordered else float(distance == 0.0))
        weighted = [weight * value for weight, value in zip(scales.alone, alike, strict=True)]
        pairs = sum(first * second for first, second in itertools.combinations(weighted, 2))
        assert found[one, other] == pytest.approx(1.0 + sum(weighted) + 0.7 * pairs + 0.6 * math.prod(alike))
    assert np.diag(found) == pytest.approx(np.full(len(levels), scales.variance))


def test_the_gradient_is_that_of_the_misfit() -> None:
    rng = np.random.default_rng(1)
    codes = LEGAL.codes[rng.choice(len(LEGAL.codes), 14, replace=False)]
    kernel = SettingKernel.of_space(SPACE, LEGAL.codes)
    count = len(kernel.columns) + 4
    misfit = _Misfit(kernel, kernel.levels(codes), rng.normal(size=14), np.full(count, -1.0), np.ones(count))
    at = rng.normal(-1.0, 0.5, count)
    _, gradient = misfit(at)
    for place in range(count):
        step = np.zeros(count)
        step[place] = 1e-5
        numeric = (misfit(at + step)[0] - misfit(at - step)[0]) / 2e-5
        assert gradient[place] == pytest.approx(numeric, rel=1e-4, abs=1e-6)


def test_it_remembers_what_it_was_told_and_is_unsure_elsewhere() -> None:
    rng = np.random.default_rng(2)
    kernel = SettingKernel.of_space(SPACE, LEGAL.codes)
    told = rng.choice(len(LEGAL.codes), 12, replace=False)
    values = rng.normal(7.0, 0.3, 12)
    levels = kernel.levels(LEGAL.codes)
    process = fit_process(kernel, levels[told], values, noise=0.001)
    mean, deviation = process.predict(levels)
    assert np.abs(mean[told] - values).max() < 0.1
    others = np.setdiff1d(np.arange(len(mean)), told)
    assert deviation[told].max() < deviation[others].min()


def test_the_logarithm_of_the_improvement_is_continuous_and_finite() -> None:
    z = np.linspace(-40.0, 5.0, 2000)
    found = _log_improvement(z)
    assert np.isfinite(found).all()
    assert (np.diff(found) > 0).all()
    assert found[-1] == pytest.approx(math.log(5.0), abs=1e-3)


def value_of(setting: Assignment) -> float:
    drafts = {"off": 0.0, "on": 0.1}[str(setting["draft"])] + 0.05 * int(setting.get("steps", 0))
    kernel = {"p": 0.0, "q": 0.15, "r": 0.05}[str(setting["kernel"])]
    return 1000 * math.exp(drafts + kernel - 0.02 * (int(setting["size"]) - 4) ** 2)


@pytest.mark.parametrize("direction", ["maximize", "minimize"])
def test_finds_the_best_of_a_space_in_a_third_of_it(direction: str) -> None:
    everything = list(legal(SPACE, {}))
    assert len(everything) == 48
    sign = 1.0 if direction == "maximize" else -1.0
    best = max(everything, key=lambda one: sign * value_of(one))
    task = SearchTask(SPACE, {}, seed=3, direction=direction)  # type: ignore[arg-type]
    proposer, history = PROPOSERS["gp"].make(task), list[Observation]()
    for _ in range(16):
        setting = proposer.ask(history)
        assert setting is not None
        history.append(Observation(setting, value_of(setting), seconds=100.0))
    assert key_of(best) in {key_of(one.assignment) for one in history}


def test_the_start_up_shows_every_value_of_every_axis() -> None:
    proposer, history = PROPOSERS["gp"].make(SearchTask(SPACE, {}, seed=1)), list[Observation]()
    for _ in range(5):
        setting = proposer.ask(history)
        assert setting is not None
        history.append(Observation(setting, 1.0))
    shown = {item for one in history for item in one.assignment.items()}
    assert shown == {(axis.name, value) for axis in SPACE.axes for value in axis.values}


def test_stays_away_from_a_value_that_fails() -> None:
    """The best settings lie where the kernel is q, and there every boot fails."""
    proposer, history = PROPOSERS["gp"].make(SearchTask(SPACE, {}, seed=0)), list[Observation]()
    for _ in range(24):
        setting = proposer.ask(history)
        assert setting is not None
        fails = setting["kernel"] == "q"
        history.append(Observation(setting, None if fails else value_of(setting), fault="exited" if fails else None))
    assert sum(one.fault is not None for one in history) <= FAMILY + 1


def test_a_gain_that_takes_ten_times_as_long_is_worth_a_tenth() -> None:
    """The kernel changes nothing but the seconds: q takes 1,000, the others 100."""
    rng = np.random.default_rng(6)
    kernel, settings = SettingKernel.of_space(SPACE, LEGAL.codes), LEGAL.listed or ()
    places = rng.choice(len(settings), 20, replace=False)
    values = np.array([math.log(value_of({**settings[place], "kernel": "p"})) for place in places])
    slow = np.array([one["kernel"] == "q" for one in settings])

    def rating(seconds: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        known = KnownSettings(LEGAL.codes[places], values, np.zeros(20, dtype=bool), seconds, 0.9 * seconds)
        return log_expected_gain(known, kernel, LEGAL.codes)

    same = np.full(20, 100.0)
    lost = rating(same) - rating(np.where(slow[places], 1000.0, same))
    assert lost[slow] == pytest.approx(np.full(slow.sum(), math.log(10)), abs=0.2)
    assert lost[~slow] == pytest.approx(np.zeros((~slow).sum()), abs=0.2)


def test_settings_under_way_are_not_proposed_again_and_do_not_count_as_failed() -> None:
    proposer = PROPOSERS["gp"].make(SearchTask(SPACE, {}, seed=5))
    history: list[Observation] = []
    for _ in range(10):
        setting = proposer.ask(history)
        assert setting is not None
        history.append(Observation(setting, value_of(setting)))
    batch: list[Observation] = []
    for _ in range(4):
        setting = proposer.ask([*history, *batch])
        assert setting is not None
        batch.append(Observation(setting, None))
    assert len({key_of(one.assignment) for one in (*history, *batch)}) == 14
    ended = [Observation(one.assignment, value_of(one.assignment)) for one in batch]
    assert proposer.ask([*history, *ended]) == PROPOSERS["gp"].make(SearchTask(SPACE, {}, seed=5)).ask(
        [*history, *ended]
    )


def test_what_is_under_way_leaves_its_like_less_to_gain() -> None:
    rng = np.random.default_rng(4)
    kernel = SettingKernel.of_space(SPACE, LEGAL.codes)
    places = rng.choice(len(LEGAL.codes), 13, replace=False)
    values = np.array([math.log(value_of((LEGAL.listed or ())[place])) for place in places])
    values[-1] = math.nan
    unknown = KnownSettings(LEGAL.codes[places[:-1]], values[:-1], np.zeros(12, dtype=bool), *seconds_of(12))
    under_way = KnownSettings(LEGAL.codes[places], values, np.zeros(13, dtype=bool), *seconds_of(13))
    lost = log_expected_gain(unknown, kernel, LEGAL.codes) - log_expected_gain(under_way, kernel, LEGAL.codes)
    others = np.setdiff1d(np.arange(len(LEGAL.codes)), places)
    alike = (LEGAL.codes[others][:, kernel.columns] == LEGAL.codes[places[-1], kernel.columns]).sum(axis=1)
    assert lost[places[-1]] > lost[others].max()
    assert np.median(lost[others][alike >= 3]) > np.median(lost[others][alike <= 1])


def test_the_value_of_an_infeasible_setting_still_teaches() -> None:
    """All with kernel q are infeasible, and show that drafting is fast; what was measured with p says nothing of it."""
    kernel, settings = SettingKernel.of_space(SPACE, LEGAL.codes), LEGAL.listed or ()
    feasible = [place for place, one in enumerate(settings) if one["kernel"] == "p" and one["draft"] == "off"]
    infeasible = [place for place, one in enumerate(settings) if one["kernel"] == "q" and one["size"] == 4]
    places = [*feasible, *infeasible]
    values = np.array([math.log(value_of(settings[place])) for place in places])
    is_infeasible = np.arange(len(places)) >= len(feasible)
    drafting = [place for place, one in enumerate(settings) if one["kernel"] == "p" and one["draft"] == "on"]

    def rating(known: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        told = KnownSettings(LEGAL.codes[places], known, is_infeasible, *seconds_of(len(places)))
        return log_expected_gain(told, kernel, LEGAL.codes[drafting])

    lost = np.where(is_infeasible, math.nan, values)
    # Without these values nothing tells whether three steps are faster than one.
    steps = np.array([int(settings[place]["steps"]) for place in drafting])
    assert rating(values)[steps == 3].mean() > rating(values)[steps == 1].mean() + 0.2
    assert abs(rating(lost)[steps == 3].mean() - rating(lost)[steps == 1].mean()) < 0.1


def test_works_as_a_sampler_in_a_study_of_optuna() -> None:
    study = create_study(direction="maximize", sampler=LegalSettingsSampler(SearchTask(SPACE, {}, seed=2)))
    for _ in range(16):
        trial = study.ask()
        setting = suggest(SPACE, {}, trial)
        assert key_of(setting) in LEGAL.places
        study.tell(trial, value_of(setting))
    assert len(study.get_trials(states=(TrialState.COMPLETE,))) == 16
    assert study.best_value == max(value_of(one) for one in legal(SPACE, {}))


def test_the_typed_values_of_an_axis_stay_apart() -> None:
    space = SearchSpace.model_validate({"axes": [{"name": "x", "values": [1, True, 1.0]}]})
    legal_ = LegalSettings(space, {})
    assert [list(row) for row in legal_.encode([{"x": value} for value in (1, True, 1.0)])] == [[0], [1], [2]]
    assert list(itertools.chain(legal_.listed or ()))  # all three are listed


@pytest.mark.parametrize(("limits", "axis"), [({"kv_cache"}, "kv"), ({"prefill", "load"}, "chunk")])
@pytest.mark.parametrize("seed", range(4))
def test_the_first_points_lift_what_limits_the_best_setting(limits: set[str], axis: str, seed: int) -> None:
    """The space lets one of the two change at a time, so that one has to come first; then nothing is left out."""
    values = {"kv": ["wide", "narrow", "packed"], "chunk": [1024, 2048, 4096]}
    both = [{"kv": kv, "chunk": chunk} for kv in values["kv"][1:] for chunk in values["chunk"][1:]]
    space = SearchSpace.model_validate(
        {
            "axes": [{"name": name, "values": tried} for name, tried in values.items()],
            "forbid": both,
            "when_bound": {"kv": "kv_cache", "chunk": "prefill"},
        }
    )
    base = {"kv": "wide", "chunk": 1024}
    proposer = proposer_for("gp", SearchTask(space, base, seed))
    history = [Observation(base, 10.0, limits=frozenset(limits))]
    for _ in range(4):
        asked = proposer.ask(history)
        assert asked is not None
        history.append(Observation(asked, 9.0))
    changed = [next(name for name in base if one.assignment[name] != base[name]) for one in history[1:]]
    assert changed[:2] == [axis, axis]
    assert len({key_of(one.assignment) for one in history}) == 5
