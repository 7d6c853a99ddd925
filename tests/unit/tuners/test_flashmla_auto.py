"""The fit, on times whose best rule is known."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import combinations, combinations_with_replacement, product

import numpy as np
import pytest

from dsabench.emit.pr_body import rule_in_words
from dsabench.model.tuned_table import ConstantRule, GridRule, RatioRule, choose
from dsabench.model.workload import Workload
from dsabench.tuners.families import FAMILIES, Family, Rule, cuts
from dsabench.tuners.flashmla_auto import tune, weigh
from dsabench.tuners.observed import Observed
from dsabench.tuners.prefill_mix import Step, steps_of

NEW = (64, 512, 1024, 4096)
PREFIX = (0, 4096, 16384, 65536)
KV = ConstantRule(kernel="flashmla_kv")


def grid(is_sparse, gain=0.2, noise=0.005, news=NEW):
    """Every new × prefix; where told, flashmla_sparse takes (1 - gain) of the time of flashmla_kv, else (1 + gain)."""
    points = []
    for new in news:
        for prefix in PREFIX:
            step = Step(new, prefix + new)
            sparse = 1.0 - gain if is_sparse(step) else 1.0 + gain
            points.append(Observed(step, {"flashmla_sparse": 100.0 * sparse, "flashmla_kv": 100.0}, noise))
    return points


def is_right(rule, points):
    chosen = [choose(rule, new_tokens=p.step.new_tokens, kv_tokens=p.step.kv_tokens) for p in points]
    return all(point.lost(kernel) == 0 for point, kernel in zip(points, chosen, strict=True))


@pytest.mark.parametrize(
    ("is_sparse", "form"),
    [
        pytest.param(lambda _: True, ConstantRule, marks=pytest.mark.slow),
        pytest.param(lambda _: False, ConstantRule, marks=pytest.mark.slow),
        (lambda step: step.kv_tokens < 30 * step.new_tokens, RatioRule),
        pytest.param(lambda step: step.new_tokens >= 1024, GridRule, marks=pytest.mark.slow),
        (lambda step: step.new_tokens >= 1024 and step.kv_tokens < 60_000, GridRule),
    ],
)
def test_the_known_rule_is_found(is_sparse, form):
    points = grid(is_sparse)
    tuned = tune(points, {}, KV)
    assert isinstance(tuned.chosen.rule, form)
    assert is_right(tuned.chosen.rule, points)
    assert tuned.chosen.worst == 0


def test_an_edge_between_neighbouring_numbers_of_tokens_tells_them_apart():
    points = grid(lambda step: step.new_tokens >= 3, news=(1, 2, 3, 100))
    fits = tune(points, {}, KV).fits
    (threshold,) = (fit for fit in fits if fit.family.name == "one threshold of new tokens")
    assert is_right(threshold.rule, points)


def test_gain_and_regrets_are_those_of_the_times():
    tuned = tune(grid(lambda _: True), {}, KV)
    assert tuned.regret_shipped == pytest.approx(0.25)
    assert tuned.regret_static == 0
    assert tuned.static == "flashmla_sparse"
    assert tuned.gains.weighted == pytest.approx(0.25)
    assert (tuned.gains.least, tuned.gains.median) == pytest.approx((0.25, 0.25))
    assert (tuned.gains.effective_shapes, tuned.gains.slower_shapes) == (16.0, 0)


def test_a_ratio_that_few_new_tokens_do_not_pay_is_found_as_such():
    points = grid(lambda step: step.new_tokens >= 256 and step.kv_tokens < 9 * step.new_tokens)
    tuned = tune(points, {}, KV)
    assert isinstance(tuned.chosen.rule, RatioRule)
    assert is_right(tuned.chosen.rule, points)
    assert rule_in_words(tuned.chosen.rule).startswith(
        f"flashmla_sparse from {tuned.chosen.rule.from_new_tokens} new tokens, and "
    )


def test_differences_within_the_noise_take_the_simplest_rule():
    points = grid(lambda step: step.new_tokens >= 1024, gain=0.002, noise=0.02)
    tuned = tune(points, {}, KV)
    assert tuned.chosen.family.parameters == 0


def test_a_rule_that_harms_single_shapes_is_not_taken_for_its_mean():
    """Sparse wins by a fifth but at the smallest batches, which the mix never has."""
    points = grid(lambda step: step.new_tokens > 64)
    tuned = tune(points, {Step(4096, 4096): 1.0}, KV)
    assert tuned.chosen.worst == 0
    assert tuned.chosen.family.name != "always flashmla_sparse"
    assert tuned.gains.effective_shapes < 2
    assert tuned.gains.weighted > 0.2


def test_the_shipped_rule_of_blackwell_is_the_one_held_against():
    points = grid(lambda step: step.kv_tokens < 512 * step.new_tokens)
    tuned = tune(points, {}, RatioRule(kv_per_new_token=512))
    assert tuned.regret_shipped == 0
    assert tuned.gains.weighted <= 0


def test_held_out_shapes_are_not_fitted():
    points = grid(lambda step: step.new_tokens >= 1024)
    lying = [Observed(p.step, {"flashmla_sparse": 1.0, "flashmla_kv": 50.0}, 0.005, held_out=True) for p in points[:3]]
    tuned = tune([*points, *lying], {}, KV)
    assert tuned.shapes == len(points)
    assert tuned.chosen.held_out == pytest.approx(49.0)
    assert is_right(tuned.chosen.rule, points)


def test_weights_go_to_the_nearest_shape_and_none_is_free():
    points = grid(lambda _: True)
    weights = weigh(points, {Step(5000, 5000): 3.0, Step(70, 4200): 1.0})
    assert weights.sum() == pytest.approx(1.0)
    assert [p.step for p, w in zip(points, weights, strict=True) if w > 0.05] == [Step(64, 4160), Step(4096, 4096)]
    assert weights.min() > 0


def test_chunks_and_batches_of_a_workload():
    def load(length, concurrency):
        return Workload(
            name="w", dataset="random-ids", input_len=length, output_len=1, num_prompts=8, max_concurrency=concurrency
        )

    assert steps_of([load(5000, 4)], 2048) == {
        Step(2048, 2048): pytest.approx(1 / 3),
        Step(2048, 4096): pytest.approx(1 / 3),
        Step(904, 5000): pytest.approx(1 / 3),
    }
    assert steps_of([load(500, 4)], 8192) == {Step(2000, 2000): 1}


def every_rule(name: str, steps: list[Step]) -> Iterator[Rule]:
    """All rules of a form with cuts between the steps."""
    new = cuts([step.new_tokens for step in steps])
    ratios = cuts([step.kv_tokens / step.new_tokens for step in steps])
    columns = [*cuts([step.kv_tokens for step in steps]), float(1 << 40)]
    match name:
        case "one ratio":
            yield from (RatioRule(kv_per_new_token=ratio) for ratio in ratios)
        case "one ratio, from so many new tokens":
            for edge, ratio in product(new, ratios):
                yield RatioRule(kv_per_new_token=ratio, from_new_tokens=max(1, math.ceil(edge)))
        case "one threshold of new tokens":
            yield ConstantRule(kernel="flashmla_sparse")
            yield from (grid_of([(edge, float(1 << 40))]) for edge in new)
        case "staircase of 1":
            yield from (grid_of([row]) for row in product(new, columns))
        case _:
            for low, high in product(combinations(new, 2), combinations_with_replacement(columns, 2)):
                yield grid_of(list(zip(low, high, strict=True)))
            yield from (grid_of([row]) for row in product(new, columns))


def grid_of(rows: list[tuple[float, float]]) -> GridRule:
    edges = [1, *(max(2, math.ceil(edge)) for edge, _ in rows)]
    columns = sorted({math.ceil(cut) for _, cut in rows if 1 < cut < 1 << 40})
    kernels = [("flashmla_kv",) * (len(columns) + 1)]
    kernels += [
        tuple("flashmla_sparse" if at < math.ceil(cut) else "flashmla_kv" for at in (1, *columns)) for _, cut in rows
    ]
    return GridRule.model_validate({"new_tokens": edges, "kv_tokens": [1, *columns], "kernels": kernels})


@pytest.mark.parametrize("family", FAMILIES[2:], ids=lambda family: family.name)
@pytest.mark.parametrize("seed", range(6))
def test_no_rule_of_a_form_costs_less_than_the_one_that_is_fitted(family: Family, seed: int) -> None:
    rng = np.random.default_rng(seed)
    steps = list({Step(int(new), int(new + kv)) for new, kv in rng.choice([3, 5, 9, 17, 40, 90], (12, 2))})
    more = rng.normal(0.0, 1.0, len(steps))

    def cost(rule: Rule) -> float:
        chosen = (choose(rule, new_tokens=step.new_tokens, kv_tokens=step.kv_tokens) for step in steps)
        return sum(one for one, kernel in zip(more, chosen, strict=True) if kernel == "flashmla_sparse")

    assert cost(family.fit(steps, more)) == pytest.approx(min(map(cost, every_rule(family.name, steps))))
