from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from dsabench.model.verdict import Verdict
from dsabench.stats.compare import (
    BootComparison,
    BootValue,
    ComparisonSpec,
    compare_boots,
    holm,
    judge_family,
    verdict_at,
)
from dsabench.stats.power import boots_needed, detectable

SPREAD = 0.015
"""Standard deviation of throughput from boot to boot, as a share; a quiet machine has about half of it."""


def side(name: str, *values: float) -> list[BootValue]:
    return [BootValue(f"{name}{i}", float(value)) for i, value in enumerate(values)]


def versus(base: list[BootValue], candidate: list[BootValue], **changes: Any) -> Verdict:
    return verdict_at(compare_boots(question(**{"paired": False} | changes), base, candidate))


def question(**changes: Any) -> ComparisonSpec:
    return ComparisonSpec(
        **{"metric": "m", "workload": "w", "direction": "maximize", "paired": True, "equivalence": 0.01} | changes
    )


def test_welch_on_logarithms() -> None:
    x, y = [100.0, 101.0, 99.0, 100.5], [110.0, 112.0, 109.0]
    verdict = versus(side("a", *x), side("b", *y))
    expected = stats.ttest_ind(np.log(y), np.log(x), equal_var=False).confidence_interval(0.95)
    assert (verdict.ci_low, verdict.ci_high) == pytest.approx((math.expm1(expected.low), math.expm1(expected.high)))
    assert verdict.effect == pytest.approx(math.exp(np.mean(np.log(y)) - np.mean(np.log(x))) - 1)
    assert (verdict.verdict, verdict.n_base, verdict.n_candidate) == ("better", 4, 3)


def test_pairs_cancel_what_both_sides_share() -> None:
    drift = [1.0, 1.2, 0.9, 1.1]
    base, candidate = (
        side("a", *drift),
        side("b", *(1.03 * d * e for d, e in zip(drift, [1, 1.001, 0.999, 1], strict=True))),
    )
    verdict = versus(base, candidate, paired=True)
    expected = stats.ttest_rel(
        np.log([v.value for v in candidate]), np.log([v.value for v in base])
    ).confidence_interval()
    assert verdict.verdict == "better"
    assert (verdict.ci_low, verdict.ci_high) == pytest.approx((math.expm1(expected.low), math.expm1(expected.high)))
    assert versus(base, candidate, paired=False).verdict == "inconclusive"


def test_direction_decides_what_is_better() -> None:
    base, candidate = side("a", 10.0, 10.1, 9.9), side("b", 12.0, 12.1, 11.9)
    assert versus(base, candidate, direction="maximize").verdict == "better"
    assert versus(base, candidate, direction="minimize").verdict == "worse"
    assert versus(candidate, base, direction="minimize").verdict == "better"


def test_where_neither_is_better_the_sides_differ() -> None:
    busy = side("a", 0.50, 0.51, 0.49), side("b", 0.90, 0.91, 0.89)
    for base, candidate in (busy, busy[::-1]):
        assert versus(base, candidate, direction=None).verdict == "differs"
    alike = versus(side("a", *[0.5] * 3), side("b", *[0.5] * 3), direction=None)
    assert alike.verdict == "no difference"


def test_values_of_one_boot_count_once() -> None:
    base = [BootValue("a", 9.0), BootValue("a", 11.0), BootValue("b", 10.2)]
    verdict = versus(base, side("c", 10.0, 10.1))
    assert (verdict.n_base, verdict.n_candidate) == (2, 2)
    assert verdict.effect == pytest.approx(math.sqrt(10.0 * 10.1) / math.sqrt(10.0 * 10.2) - 1)


def test_an_interval_inside_the_margin_is_no_difference_even_if_it_excludes_zero() -> None:
    verdict = versus(side("a", 100.0, 100.01, 99.99), side("b", 100.3, 100.31, 100.29))
    assert verdict.verdict == "no difference"
    assert verdict.ci_low is not None
    assert verdict.ci_low > 0
    assert (
        versus(side("a", 100.0, 100.01, 99.99), side("b", 100.3, 100.31, 100.29), equivalence=0.001).verdict == "better"
    )


def test_the_same_measurements_are_no_difference_by_definition() -> None:
    records = side("a", 100.0, 140.0)
    verdict = versus(records, records[::-1])
    assert (verdict.verdict, verdict.effect, verdict.ci_low) == ("no difference", 0.0, None)
    assert versus(records[:1], records[:1]).verdict == "no difference"


def test_one_boot_a_side_says_so() -> None:
    verdict = versus(side("a", 100.0), side("b", 150.0, 151.0))
    assert (verdict.verdict, verdict.ci_low) == ("inconclusive", None)
    assert verdict.effect == pytest.approx(math.sqrt(1.5 * 1.51) - 1)
    assert verdict.reason.startswith("1 and 2 boots")


def test_inconclusive_says_what_would_decide() -> None:
    base, candidate = side("a", 100.0, 103.0, 97.0), side("b", 101.0, 104.0, 99.0)
    verdict = versus(base, candidate)
    assert verdict.verdict == "inconclusive"
    spread = math.sqrt(np.mean([np.var(np.log([v.value for v in s]), ddof=1) for s in (base, candidate)]))
    assert verdict.effect is not None
    boots = boots_needed(spread, math.log1p(verdict.effect), paired=False, alpha=0.05)
    assert f"; about {boots} boots per side would show a change of {100 * verdict.effect:+.1f} %" in verdict.reason


def test_a_decrease_is_said_as_the_decrease_that_is_shown() -> None:
    verdict = versus(side("a", 100.0, 160.0, 70.0), side("b", 74.0, 40.0, 90.0))
    assert (verdict.verdict, verdict.effect) == ("inconclusive", pytest.approx(-0.3804, abs=1e-4))
    assert verdict.reason.endswith("boots per side would show a change of -38.0 %")
    little = versus(side("a", 100.0, 103.0, 97.0), side("b", 99.9, 102.9, 97.0))
    assert little.reason.endswith("boots per side would show a change of -1.0 %")


def test_what_is_detectable_is_a_ratio_too_so_that_no_decrease_exceeds_the_whole() -> None:
    less = versus(side("a", 100.0, 160.0, 70.0), side("b", 74.0, 40.0, 90.0))
    more = versus(side("b", 74.0, 40.0, 90.0), side("a", 100.0, 160.0, 70.0))
    assert less.mde is not None
    assert less.mde > 1.0
    assert less.mde == pytest.approx(more.mde)
    assert less.detectable is not None
    low, high = less.detectable
    assert -1.0 < low < 0.0
    assert (1.0 + low) * (1.0 + high) == pytest.approx(1.0)
    assert (less.detectable_beside_effect, more.detectable_beside_effect) == (low, pytest.approx(high))
    points = less.model_copy(update={"unit": "points", "mde": 0.02})
    assert points.detectable == (-0.02, 0.02)
    assert less.model_copy(update={"mde": None}).detectable_beside_effect is None


@pytest.mark.parametrize("value", [0.0, -1.0])
def test_without_a_ratio_nothing_is_claimed(value: float) -> None:
    verdict = versus(side("a", value, 2.0, 2.5), side("b", 3.0, 4.0, 5.0))
    assert verdict.verdict == "inconclusive"
    assert "1 of 6 boots gave a value that is not positive" in verdict.reason


def test_boots_that_all_agree_are_no_difference_even_at_zero() -> None:
    assert versus(side("a", 0.0, 0.0, 0.0), side("b", 0.0, 0.0, 0.0)).verdict == "no difference"


def beyond(boots: list[BootValue], *signs: int) -> list[BootValue]:
    """With values that are this or less (-1), or this or more (1)."""
    return [one._replace(beyond=sign) for one, sign in zip(boots, signs, strict=True)]


def test_boots_that_only_bound_a_ratio_prove_what_holds_whatever_they_are() -> None:
    low, high = side("a", 0.2, 0.3, 0.25), side("b", 0.8, 0.81, 0.79)
    less, more = beyond(low, -1, 0, 0), beyond(high, 1, 0, 0)
    assert versus(less, high).verdict == versus(low, more).verdict == versus(less, more).verdict == "better"
    assert versus(high, less).verdict == versus(more, low).verdict == "worse"
    assert "% or more (95 % confidence)" in versus(less, high).reason
    assert " or less and " in versus(high, less).reason


def test_boots_that_only_bound_a_ratio_prove_nothing_that_they_could_undo() -> None:
    low, high = side("a", 0.2, 0.3, 0.25), side("b", 0.8, 0.81, 0.79)
    for base, candidate in ((low, beyond(high, -1, 0, 0)), (beyond(low, 0, 1, 0), high)):
        verdict = versus(base, candidate)
        assert verdict.verdict == "inconclusive"
        assert verdict.boots_needed is None
        assert verdict.reason.endswith("; how far beyond some values lie is not known")
    same = versus(beyond(side("a", 2, 2, 2), 1, 1, 1), beyond(side("b", 2, 2, 2), 1, 1, 1))
    assert (same.verdict, same.reason) == (
        "inconclusive",
        "every boot gave 2, and how far beyond some values lie is not known",
    )
    # What is as good as equal is not where one of them may be far less.
    near = [side(name, 1.0, 1.0001, 0.9999) for name in "ab"]
    assert versus(*near).verdict == "no difference"
    assert versus(near[0], beyond(near[1], -1, 0, 0)).verdict == "inconclusive"


def test_exact_values_that_differ_differ() -> None:
    verdict = versus(side("a", 2.0, 2.0, 2.0), side("b", 3.0, 3.0, 3.0))
    assert (verdict.verdict, verdict.ci_low, verdict.ci_high) == ("better", pytest.approx(0.5), pytest.approx(0.5))


def test_shared_boots_are_not_independent() -> None:
    base = side("a", 1.0, 2.0, 3.0)
    assert "2 boots are on both sides" in versus(base, [*base[:2], BootValue("b", 9.0)]).reason
    assert versus(base, side("a", 1.1, 2.2, 3.3), paired=True).verdict == "better"


def test_a_boot_without_partner_is_left_out_and_named() -> None:
    verdict = versus(side("a", 1.0, 2.0, 3.0, 4.0), side("b", 1.1, 2.21, 3.3), paired=True)
    assert verdict.reason.endswith("1 boot without a partner left out")


@given(
    st.lists(st.floats(1e-300, 1e300), min_size=2, max_size=4),
    st.lists(st.floats(1e-300, 1e300), min_size=2, max_size=4),
    st.booleans(),
)
def test_any_positive_values_give_a_verdict(x: list[float], y: list[float], paired: bool) -> None:
    verdict = versus(side("a", *x), side("b", *y), paired=paired)
    if verdict.ci_low is not None and verdict.ci_high is not None and verdict.effect is not None:
        assert verdict.ci_low <= verdict.effect <= verdict.ci_high


def pairs(rng: np.random.Generator, boots: int, ratio: float, drift: float) -> tuple[list[BootValue], list[BootValue]]:
    """Interleaved boots that share a drift of the machine; `ratio` is the truth."""
    shared = np.exp(rng.normal(0.0, drift, size=boots))
    x, y = (1000.0 * shared * np.exp(rng.normal(0.0, SPREAD, size=boots)) for _ in range(2))
    return side("a", *x), side("b", *(y * ratio))


DRAWS = 3000
CHANCE = 3.0 * math.sqrt(0.05 * 0.95 / DRAWS)
"""Three standard errors of a share of 5 % in that many draws."""


@pytest.mark.parametrize(("boots", "paired"), [(3, True), (5, True), (3, False), (5, False)])
def test_equal_sides_are_rarely_told_apart(boots: int, paired: bool) -> None:
    rng = np.random.default_rng(boots)
    drift = 0.05 if paired else 0.0
    words = Counter(versus(*pairs(rng, boots, 1.0, drift), paired=paired).verdict for _ in range(DRAWS))
    assert (words["better"] + words["worse"]) / DRAWS <= 0.05 + CHANCE


@pytest.mark.parametrize(("boots", "paired"), [(3, True), (5, True), (5, False)])
def test_the_stated_mde_is_found_four_times_in_five(boots: int, paired: bool) -> None:
    rng = np.random.default_rng(10 + boots)
    standard_error = SPREAD * math.sqrt(2.0 / boots)
    mde = detectable(standard_error, boots - 1 if paired else 2 * boots - 2, 0.05)
    ratio, drift = math.exp(mde), 0.05 if paired else 0.0
    verdicts = [versus(*pairs(rng, boots, ratio, drift), paired=paired) for _ in range(1500)]
    assert np.mean([verdict.verdict == "better" for verdict in verdicts]) == pytest.approx(0.8, abs=0.04)
    assert np.sqrt(np.mean([math.log1p(v.mde or 0.0) ** 2 for v in verdicts])) == pytest.approx(mde, rel=0.1)


def test_holm_levels() -> None:
    assert holm([0.04, 0.001, 0.02], 0.05) == pytest.approx((0.05, 0.05 / 3, 0.025))
    assert holm([0.03, 0.001, 0.04], 0.05) == pytest.approx((0.025, 0.05 / 3, 0.025))
    assert holm([]) == ()


def test_a_family_is_judged_at_its_own_level() -> None:
    rng = np.random.default_rng(5)
    family = [compare_boots(question(equivalence=1e-6), *pairs(rng, 5, ratio, 0.0)) for ratio in (1.0, 1.2, 1.05, 1.03)]
    for alone, corrected in zip([judge_family([member])[0] for member in family], judge_family(family), strict=True):
        assert corrected.ci_low is not None
        assert corrected.ci_high is not None
        assert (corrected.ci_low <= 0 <= corrected.ci_high) == (corrected.verdict == "inconclusive")
        assert alone.ci_low is not None
        assert corrected.ci_low <= alone.ci_low
        assert corrected.effect == alone.effect


def test_a_member_without_estimate_takes_no_part() -> None:
    rng = np.random.default_rng(5)
    tested = compare_boots(question(), *pairs(rng, 4, 1.1, 0.0))
    settled = compare_boots(question(), side("a", 1.0), side("b", 2.0))
    assert judge_family([settled, tested, settled])[1] == judge_family([tested])[0]


def test_a_family_of_equal_sides_rarely_has_any_difference() -> None:
    rng = np.random.default_rng(8)
    families: list[list[BootComparison]] = [
        [compare_boots(question(), *pairs(rng, 4, 1.0, 0.05)) for _ in range(6)] for _ in range(500)
    ]
    alarms = [any(v.verdict in {"better", "worse"} for v in judge_family(family)) for family in families]
    uncorrected = [
        any(judge_family([m])[0].verdict in {"better", "worse"} for m in family) for family in families[:200]
    ]
    assert np.mean(alarms) <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / 500)
    assert np.mean(uncorrected) > 0.15


def test_two_boots_a_side_that_agree_by_chance_give_no_verdict() -> None:
    verdict = versus(side("a", 1.0, 1.0001), side("b", 1.04, 1.0401), paired=True)
    assert (verdict.verdict, verdict.ci_low) == ("inconclusive", None)
    assert verdict.effect == pytest.approx(0.04, abs=1e-3)
    assert verdict.reason == "2 and 2 boots: a verdict takes 3 a side"
