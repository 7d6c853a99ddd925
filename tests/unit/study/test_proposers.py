from __future__ import annotations

import itertools
import random
from collections import Counter
from statistics import mean
from typing import Literal, get_args

import pytest

from dsabench.config.load import load_study
from dsabench.model.space import count, key_of, legal
from dsabench.model.study import Assignment, ProposerSpec, SearchSpace
from dsabench.model.value import KnobValue
from dsabench.study.proposers import PROPOSERS, Observation, Proposer, SearchTask
from dsabench.study.proposers.grid import GridProposer
from dsabench.study.proposers.random import RandomProposer

WIDE = SearchSpace.model_validate(
    {
        "axes": [
            {"name": "a", "values": [1, 2, 4, 8, 16]},
            {"name": "b", "values": ["p", "q", "r", "s"]},
            {"name": "c", "values": [64, 128, 256, 512, 1024]},
            {"name": "d", "values": [0, 1, 2, 3, 4]},
        ]
    }
)


def run(proposer: Proposer, asks: int, value: dict[str, dict[KnobValue, float]], sign: float = 1.0) -> float:
    """The best of an additive objective after so many asks."""
    history: list[Observation] = []
    for _ in range(asks):
        assignment = proposer.ask(history)
        assert assignment is not None
        total = sum(value[name][setting] for name, setting in assignment.items())
        history.append(Observation(assignment, sign * total))
    return max(sign * one.value for one in history if one.value is not None)


def additive(seed: int) -> dict[str, dict[KnobValue, float]]:
    rng = random.Random(seed)
    return {axis.name: {setting: rng.random() for setting in axis.values} for axis in WIDE.axes}


@pytest.mark.parametrize("direction", ["maximize", "minimize"])
def test_tpe_beats_uniform_on_an_additive_objective(direction: Literal["maximize", "minimize"]) -> None:
    assert count(WIDE, {}) == 500
    seeds, asks = range(8), 36
    sign = 1.0 if direction == "maximize" else -1.0
    tpe = mean(
        run(PROPOSERS["tpe"].make(SearchTask(WIDE, {}, seed, direction)), asks, additive(seed), sign) for seed in seeds
    )
    uniform = mean(run(RandomProposer(SearchTask(WIDE, {}, seed)), asks, additive(seed), sign) for seed in seeds)
    best = mean(sum(max(values.values()) for values in additive(seed).values()) for seed in seeds)
    assert best - tpe < 0.75 * (best - uniform)


def test_tpe_keeps_away_from_what_fails_or_is_infeasible() -> None:
    """The best values lie where b is p; there everything fails or breaks the constraint."""
    for spoiled in (None, 1.0):
        history: list[Observation] = []
        proposer = PROPOSERS["tpe"].make(SearchTask(WIDE, {}, seed=1))
        for _ in range(30):
            assignment = proposer.ask(history)
            assert assignment is not None
            bad = assignment["b"] == "p"
            value = None if bad and spoiled is None else 100.0 if bad else float(assignment["d"])
            history.append(Observation(assignment, value, 1.0 if bad and spoiled else 0.0))
        late = [one.assignment["b"] for one in history[15:]]
        assert late.count("p") <= 3


def first_of_grid(space: SearchSpace, asks: int, seed: int = 0, base: Assignment | None = None) -> list[Assignment]:
    history: list[Observation] = []
    for _ in range(asks):
        assignment = GridProposer(SearchTask(space, base or {}, seed)).ask(history)
        assert assignment is not None
        history.append(Observation(assignment, None))
    return [one.assignment for one in history]


@pytest.mark.parametrize("seed", range(5))
def test_a_truncated_grid_covers_every_value_of_every_axis(seed: int) -> None:
    longest = max(len(axis.values) for axis in WIDE.axes)
    shown = {setting for one in first_of_grid(WIDE, longest, seed) for setting in one.items()}
    assert shown == {(axis.name, value) for axis in WIDE.axes for value in axis.values}


def test_a_longer_grid_covers_all_pairs_early() -> None:
    shown = {pair for one in first_of_grid(WIDE, 45) for pair in itertools.combinations(key_of(one), 2)}
    every = {pair for one in legal(WIDE, {}) for pair in itertools.combinations(key_of(one), 2)}
    assert shown == every  # 25 assignments at the least; 500 without an order


def test_six_settings_of_the_shipped_config_show_every_value() -> None:
    config = load_study("local")
    base = Observation(config.runtime.base, 1.0)
    history = [base]
    for _ in range(5):
        assignment = GridProposer(SearchTask(config.space, config.runtime.base)).ask(history)
        assert assignment is not None
        history.append(Observation(assignment, 1.0))
    shown = {(name, value) for one in history for name, value in one.assignment.items()}
    assert shown >= {(axis.name, value) for axis in config.space.axes for value in axis.values}


def test_seeds_give_different_orders() -> None:
    for kind in (GridProposer, RandomProposer):
        firsts = {key_of(one) for seed in range(10) if (one := kind(SearchTask(WIDE, {}, seed)).ask([])) is not None}
        assert len(firsts) > 3


CONDITIONAL = SearchSpace.model_validate(
    {
        "axes": [{"name": "a", "values": [0, 1]}, {"name": "b", "values": [1, 2, 3]}, {"name": "c", "values": [1, 2]}],
        "when": {"b": {"a": 1}},
        "forbid": [{"b": 3, "c": 2}],
    }
)


@pytest.mark.parametrize("enumerable", [10_000, 2])
def test_uniform_is_uniform_over_what_is_legal(enumerable: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Listed or drawn: an assignment with fewer active axes is no likelier."""
    monkeypatch.setattr("dsabench.study.proposers.legal_settings.LISTABLE", enumerable)
    drawn = Counter(
        key_of(one)
        for seed in range(3500)
        if (one := RandomProposer(SearchTask(CONDITIONAL, {}, seed)).ask([])) is not None
    )
    legal_keys = {key_of(one) for one in legal(CONDITIONAL, {})}
    assert drawn.keys() == legal_keys
    assert len(legal_keys) == 7
    # Five standard deviations of a binomial count around 3500 / 7.
    assert all(abs(times - 500) < 5 * (3500 / 7 * 6 / 7) ** 0.5 for times in drawn.values())


def test_uniform_finds_the_last_ones_of_a_space_too_large_to_draw(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dsabench.study.proposers.legal_settings.LISTABLE", 2)
    monkeypatch.setattr("dsabench.study.proposers.random.DRAWS", 3)
    history: list[Observation] = []
    while (assignment := RandomProposer(SearchTask(CONDITIONAL, {})).ask(history)) is not None:
        history.append(Observation(assignment, 1.0))
    assert len(history) == 7


@pytest.mark.parametrize("direction", ["maximize", "minimize"])
def test_coordinate_finds_the_best_of_independent_axes_in_one_pass(direction: Literal["maximize", "minimize"]) -> None:
    """The default, then each other value of one axis after another, always at the best of the axes before."""
    worth, sign = additive(4), 1.0 if direction == "maximize" else -1.0
    proposer, history = PROPOSERS["coordinate"].make(SearchTask(WIDE, {}, 2, direction)), list[Observation]()
    first = {axis.name: axis.values[0] for axis in WIDE.axes}
    pass_ = 1 + sum(len(axis.values) - 1 for axis in WIDE.axes)
    for number in range(pass_):
        setting = first if number == 0 else proposer.ask(history)
        assert setting is not None
        value = sum(worth[name][one] for name, one in setting.items())
        history.append(Observation(setting, value))
    changed = [
        {name for name in first if one.assignment[name] != earlier.assignment[name]}
        for earlier, one in itertools.pairwise(history)
    ]
    assert all(
        len(axes) <= 2 for axes in changed
    )  # the new value, and at most the return to the best of the axis before
    best = max(history, key=lambda one: sign * (one.value or 0.0))
    assert all(
        worth[name][value] == max(worth[name].values(), key=lambda one: sign * one)
        for name, value in best.assignment.items()
    )


def test_coordinate_changes_what_is_tied_to_an_axis_with_it() -> None:
    space = SearchSpace.model_validate(
        {
            "axes": [{"name": "size", "values": [1, 2, 4]}, {"name": "shared", "values": [False, True]}],
            "forbid": [{"size": 1, "shared": True}, {"size": 2, "shared": False}, {"size": 4, "shared": False}],
        }
    )
    proposer, history = (
        PROPOSERS["coordinate"].make(SearchTask(space, {})),
        [Observation({"size": 1, "shared": False}, 1.0)],
    )
    for _ in range(2):
        setting = proposer.ask(history)
        assert setting is not None
        history.append(Observation(setting, 1.0))
    assert {one.assignment["size"] for one in history} == {1, 2, 4}
    assert proposer.ask(history) is None


@pytest.mark.parametrize("tail", [64, 2])
@pytest.mark.parametrize("seed", range(5))
def test_what_it_has_seen_of_a_history_before_changes_no_proposal(
    seed: int, tail: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Settings join at the end or before it, others end or are given up, and now and then it is another history."""
    monkeypatch.setattr("dsabench.study.proposers.proposer._TAIL", tail)
    rng, task, settings = random.Random(seed), SearchTask(WIDE, {}, seed), list(legal(WIDE, {}))
    proposer, history = RandomProposer(task), list[Observation]()
    for step in range(200):
        asked = proposer.ask(history)
        assert asked == RandomProposer(SearchTask(WIDE, {}, seed)).ask(tuple(history))
        known = {key_of(one.assignment) for one in history}
        assert set(task.seen(history)) == known
        assert [key_of(one) in known for one in settings] == list(~task.seen(history).unseen)
        assert asked is not None
        history.insert(len(history) - rng.choice([0, 0, 1, 5]) if len(history) > 5 else 0, Observation(asked, None))
        changed = rng.randrange(len(history))
        history[changed] = rng.choice([history[changed], Observation(dict(history[changed].assignment), 1.0)])
        if step % 7 == 0:
            history.append(history[0])
        if step % 20 == 0:
            rng.shuffle(history)
        if step % 50 == 0:
            del history[::3]


def test_every_kind_of_a_config_has_a_strategy() -> None:
    assert set(get_args(ProposerSpec.model_fields["kind"].annotation)) == PROPOSERS.keys()


def test_only_settings_of_strategies_that_do_not_learn_are_known_ahead() -> None:
    assert {kind for kind, strategy in PROPOSERS.items() if not strategy.learns} == {"grid", "random"}
