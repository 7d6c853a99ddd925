"""Rules that explain failures, against all possible sets of rules."""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping

import numpy as np
import pytest

from dsabench.model.study import SearchSpace
from dsabench.study.failing_families import failing_families
from dsabench.study.proposers import Observation, SearchTask, failure_rules
from dsabench.study.proposers.failure_rules import FAMILY, FailureRules
from dsabench.study.proposers.gaussian_process import SettingKernel
from dsabench.study.proposers.legal_settings import LegalSettings


def rules_of(
    axes: dict[str, list[object]], ran: list[dict[str, object]], failed: list[dict[str, object]]
) -> FailureRules:
    space = SearchSpace.model_validate({"axes": [{"name": name, "values": values} for name, values in axes.items()]})
    legal = LegalSettings(space, {})
    kernel = SettingKernel.of_space(space, legal.codes)
    levels = kernel.levels(legal.codes)

    def having(some: list[dict[str, object]]) -> list[int]:
        settings = [dict(one) for one in legal.listed or ()]
        return [settings.index(one) for one in some]

    return FailureRules(kernel, levels[having(ran)], levels[having(failed)])


def levels_of(rules: FailureRules, *places: int) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    """The levels of one setting, by the place of its value on each axis."""
    return rules.kernel.levels(np.array([places], dtype=np.int16))


SMALL: dict[str, list[object]] = {"a": ["p", "q"], "b": ["r", "s"]}


def test_the_probabilities_are_those_of_all_sets_of_rules() -> None:
    """Of two axes with two values, which settings run is known for three of four: all 2^8 sets of rules can be weighed."""
    rules = rules_of(SMALL, ran=[{"a": "p", "b": "r"}], failed=[{"a": "q", "b": "r"}, {"a": "q", "b": "s"}])
    found = rules.probabilities
    axis, conditions = rules._axis, rules._conditions.astype(bool)
    known = [
        (levels_of(rules, 0, 0)[0] > 0, True),
        (levels_of(rules, 1, 0)[0] > 0, False),
        (levels_of(rules, 1, 1)[0] > 0, False),
    ]
    pairs = [(i, j) for i in range(len(axis)) for j in range(len(axis)) if i == j or axis[i] < axis[j]]
    covers = {pair: [all((conditions[one] & levels).any() for one in pair) for levels, _ in known] for pair in pairs}
    pairs = [pair for pair in pairs if any(covers[pair])]  # the others stay as they are
    weights = dict.fromkeys(pairs, 0.0)
    total = 0.0
    for held in itertools.product([False, True], repeat=len(pairs)):
        weight = 1.0
        for pair, holds in zip(pairs, held, strict=True):
            prior = failure_rules._ALONE if pair[0] == pair[1] else failure_rules._TOGETHER
            weight *= prior if holds else 1.0 - prior
        for place, (_, runs) in enumerate(known):
            fails = any(holds and covers[pair][place] for pair, holds in zip(pairs, held, strict=True))
            chance = 1.0 if fails else failure_rules._BY_CHANCE
            weight *= (1.0 - chance) if runs else chance
        total += weight
        for pair, holds in zip(pairs, held, strict=True):
            weights[pair] += weight * holds
    for pair in pairs:
        assert found[pair] == pytest.approx(weights[pair] / total, abs=0.12)
    assert max(pairs, key=lambda pair: found[pair]) == max(pairs, key=lambda pair: weights[pair])


AXES: dict[str, list[object]] = {"size": [1, 2, 4, 8], "kernel": ["p", "q", "r"], "cache": ["x", "y"]}


def setting(size: int, kernel: str, cache: str) -> dict[str, object]:
    return {"size": size, "kernel": kernel, "cache": cache}


def test_a_run_refutes_every_rule_that_covers_it() -> None:
    rules = rules_of(AXES, ran=[setting(1, "p", "x")], failed=[setting(1, "q", "x")])
    holding = rules._holding(rules.ran)[0].astype(bool)
    assert (rules.probabilities[np.ix_(holding, holding)] == 0.0).all()


def test_what_fails_at_a_size_fails_above_it() -> None:
    """Sizes 4 and 8 fail with q, 1 and 2 run: that "from 4 on" fails is one rule, and told from q alone."""
    ran = [setting(size, kernel, cache) for size in (1, 2) for kernel in ("p", "q", "r") for cache in ("x", "y")]
    ran += [setting(size, "p", "x") for size in (4, 8)]
    rules = rules_of(AXES, ran=ran, failed=[setting(4, "q", "x"), setting(8, "q", "x"), setting(4, "q", "y")])
    assert rules.survival(levels_of(rules, 3, 1, 1))[0] < 0.2
    assert rules.survival(levels_of(rules, 3, 0, 1))[0] > 0.8


def test_a_family_of_failures_is_hopeless_only_if_nothing_else_explains_them() -> None:
    ran = [setting(1, "p", "x"), setting(2, "r", "x"), setting(8, "p", "y")]
    alike = [setting(1, "q", "x"), setting(4, "q", "y"), setting(8, "q", "x")]
    assert len(alike) == FAMILY
    told = rules_of(AXES, ran, alike)
    assert told.is_hopeless(levels_of(told, 1, 1, 1)).all()
    assert not told.is_hopeless(levels_of(told, 1, 0, 1)).any()
    few = rules_of(AXES, ran, alike[:2])
    assert not few.is_hopeless(levels_of(few, 1, 1, 1)).any()
    # The same number of failures, all with size 8 too.
    both = rules_of(AXES, [setting(1, "p", "x"), setting(2, "r", "x")], [setting(8, "q", "x"), setting(8, "q", "y")])
    assert not both.is_hopeless(levels_of(both, 0, 1, 0)).any()


def test_a_family_is_told_with_its_faults_and_what_is_left_of_it() -> None:
    axes = {"kernel": ["a", "b"], "dtype": ["wide", "narrow"], "size": [1, 2, 4, 8], "x": [0, 1], "y": [0, 1]}
    space = SearchSpace.model_validate({"axes": [{"name": name, "values": values} for name, values in axes.items()]})
    task = SearchTask(space, {name: values[0] for name, values in axes.items()})

    def fault_of(one: Mapping[str, object]) -> str | None:
        if (one["kernel"], one["dtype"]) == ("b", "narrow"):
            return "exited"
        return "out_of_memory" if one["size"] in (4, 8) and one["dtype"] == "wide" else None

    tried = list(task.legal.listed or ())
    random.Random(1).shuffle(tried)
    tried = tried[:40]
    history = [Observation(one, None if fault_of(one) else 1.0, fault=fault_of(one)) for one in tried]
    found = {one.setting: one for one in failing_families(task, history)}
    assert set(found) == {"kernel=b with dtype=narrow", "dtype=wide with size of 4 and more"}
    for name, fault, size in (
        ("kernel=b with dtype=narrow", "exited", 16),
        ("dtype=wide with size of 4 and more", "out_of_memory", 16),
    ):
        one = found[name]
        assert one.faults == (fault,)
        assert one.failed >= FAMILY
        assert one.failed + one.left == size
    assert failing_families(task, [one for one in history if one.value is not None]) == ()
    assert failing_families(task, []) == ()
