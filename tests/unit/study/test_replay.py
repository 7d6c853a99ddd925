"""Replays: what a search pays, and what is told of several."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean

import pytest

from dsabench.model.space import key_of
from dsabench.model.study import Assignment, SearchSpace
from dsabench.study.landscape import Landscape, LandscapeHeader, LandscapeSetting, read_landscape
from dsabench.study.proposers import Observation, SearchTask
from dsabench.study.proposers.expected import LEAST, expected_values, measured_values
from dsabench.study.replay import Replay, ReplaySummary, replay, search, summarise
from dsabench.study.synthetic import generate

ROOT = Path(__file__).parents[3]

SMALL = Landscape(
    header=LandscapeHeader(name="small", base={"a": 1}, axes={"a": (1, 2, 3, 4, 5)}),
    settings=(
        LandscapeSetting(setting={"a": 1}, value=90.0, boot_s=100, trials_s=10),
        LandscapeSetting(setting={"a": 2}, fault="exited", boot_s=50),
        LandscapeSetting(setting={"a": 3}, value=200.0, violation=0.5, boot_s=100, trials_s=10),
        LandscapeSetting(setting={"a": 4}, value=100.0, boot_s=100, trials_s=30),
    ),
)


TASK = SearchTask(SMALL.header.space, SMALL.header.base)


class InOrder:
    """Proposes what it was given."""

    def __init__(self, *values: int) -> None:
        self.values = values

    def ask(self, history: Sequence[Observation]) -> Assignment | None:
        left = [value for value in self.values if {"a": value} not in [dict(one.assignment) for one in history]]
        return {"a": left[0]} if left else None


def test_counts_every_boot_and_prefers_only_what_is_feasible() -> None:
    told = replay(SMALL, TASK, InOrder(2, 3, 5, 4), within=0.03, most=10)
    assert told.seconds == (110, 160, 270, 400)  # the default first; 5 has no line, so it costs nothing
    assert told.regrets == pytest.approx((0.1, 0.1, 0.1, 0.0))
    assert told.failed == 1
    assert told.boots_to(0.03) == 4
    assert told.seconds_to(0.03) == 400
    assert told.boots_to(0.5) == 1


def test_a_search_ends_at_its_limit() -> None:
    told = replay(SMALL, TASK, InOrder(2, 3, 4), within=0.03, most=2)
    assert len(told.seconds) == 2
    assert told.boots_to(0.03) is None


def test_every_strategy_sees_the_same_measurement_of_a_setting() -> None:
    noisy = SMALL.model_copy(update={"header": SMALL.header.model_copy(update={"noise": 0.2})})
    seen: list[dict[object, float | None]] = []
    for order in ((2, 3, 4), (4, 3, 2)):
        proposer = InOrder(*order)
        histories: list[Sequence[Observation]] = []
        ask = proposer.ask
        proposer.ask = lambda history, ask=ask, kept=histories: (kept.append(list(history)), ask(history))[1]  # type: ignore[method-assign]
        replay(noisy, replace(TASK, seed=7), proposer, within=0.0001, most=10)
        seen.append({key_of(one.assignment): one.value for one in histories[-1]})
    assert seen[0].items() & seen[1].items()
    assert all(seen[1].get(key, value) == value for key, value in seen[0].items())


def test_quantiles_of_the_cost_know_of_searches_that_never_got_there() -> None:
    reached, never = Replay((10.0, 20.0), (1, 2), (0.5, 0.01), 0), Replay((10.0, 20.0), (1, 2), (0.5, 0.4), 1)
    told = ReplaySummary("x", 100.0, 0.03, (reached, reached, never, never))
    assert (told.reached, told.cost_fraction(0.5), told.cost_fraction(0.75)) == (2, 0.2, None)
    assert told.failed == 0.5
    assert (told.regret, told.regret_interval) == (0.01, None)  # four searches have no 95 % interval


def test_the_interval_of_the_regret_is_that_of_a_median() -> None:
    searches = tuple(Replay((10.0,), (1,), (regret / 100,), 0) for regret in range(1, 13))
    told = ReplaySummary("x", 100.0, 0.03, searches)
    assert (told.regret, told.regret_interval) == (0.06, (0.03, 0.10))
    unfeasible = ReplaySummary("x", 100.0, 0.03, tuple(Replay((10.0,), (1,), (math.inf,), 0) for _ in range(8)))
    assert (unfeasible.regret, unfeasible.regret_interval, unfeasible.cost_fraction(0.5)) == (None, None, None)


def test_gp_loses_less_than_random_and_hand_tuning() -> None:
    landscapes = [generate("rugged", seed) for seed in range(16)]
    found = {
        name: [summarise(one, name, seeds=1, within=0.03, most=24).replays[0] for one in landscapes]
        for name in ("gp", "random", "coordinate")
    }
    regret = {name: fmean(one.regret_after(24) for one in told) for name, told in found.items()}
    assert regret["gp"] < 0.7 * regret["random"]
    assert regret["gp"] < regret["coordinate"]


def test_a_lucky_measurement_makes_no_winner() -> None:
    """Twelve settings on a line, one of which was measured 6 % too high: its neighbours tell."""
    space = SearchSpace.model_validate({"axes": [{"name": "x", "values": list(range(12))}]})
    task = SearchTask(space, {"x": 0})
    values = [100.0 + x / 2 for x in range(12)]
    values[3] *= 1.06
    history = [Observation({"x": x}, value) for x, value in enumerate(values)]
    failed = Observation({"x": 5}, None, fault="exited")
    assert max(values) == measured_values(task, history)[3]
    expected = expected_values(task, [*history[:5], failed, *history[6:]])
    assert expected[5] is None
    assert max(range(12), key=lambda place: expected[place] or 0.0) > 8
    few = history[: LEAST - 1]
    assert expected_values(task, few) == measured_values(task, few)


def test_the_committed_landscape_is_found_in_a_dozen_boots() -> None:
    landscape = read_landscape(ROOT / "results" / "reference-landscape" / "landscape.jsonl.gz")
    assert len(landscape.settings) == 384
    found = [search(landscape, "gp", seed, within=0.03, most=30) for seed in range(7)]
    boots = sorted(one.boots_to(0.03) or 99 for one in found)
    assert boots[3] <= 12
