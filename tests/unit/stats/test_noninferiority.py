from __future__ import annotations

import numpy as np
import pytest

from dsabench.stats.noninferiority import mcnemar, non_inferiority, paired_bootstrap


def right_or_wrong(count: int, wrong: int) -> list[list[float]]:
    return [[0.0]] * wrong + [[1.0]] * (count - wrong)


def test_three_points_worse_is_refused() -> None:
    result = non_inferiority(right_or_wrong(1319, 60), right_or_wrong(1319, 100), 0.01)
    assert result.answer == "no"
    assert result.difference == pytest.approx(-40 / 1319)


def test_equal_sets_pass_where_there_are_enough_questions() -> None:
    assert non_inferiority(right_or_wrong(1319, 60), right_or_wrong(1319, 60), 0.01).answer == "yes"
    few = non_inferiority(right_or_wrong(20, 1), right_or_wrong(20, 1), 0.01)
    assert few.answer == "inconclusive"
    assert few.more_repeats is not None


@pytest.mark.parametrize("lost", [0, 1, 2])
def test_twenty_questions_decide_nothing_about_one_point(lost) -> None:
    assert non_inferiority(right_or_wrong(20, 1), right_or_wrong(20, 1 + lost), 0.01).answer == "inconclusive"


def _runs(rng, loss, repeats):
    hard = np.clip(rng.beta(8, 1, size=400), 0, 1)

    def draw(p):
        return (rng.random((400, repeats)) < p[:, None]).astype(float).tolist()

    return draw(hard), draw(np.clip(hard - loss, 0, 1))


@pytest.mark.parametrize(("loss", "never"), [(0.0, "no"), (0.02, "yes")])
def test_false_answers_are_as_rare_as_the_level_says(loss, never) -> None:
    rng = np.random.default_rng(11)
    answers = [non_inferiority(*_runs(rng, loss, 4), margin=0.02).answer for _ in range(300)]
    assert answers.count(never) / 300 <= 0.08


def test_the_repeats_it_asks_for_are_enough() -> None:
    rng = np.random.default_rng(3)
    first = non_inferiority(*_runs(rng, 0.0, 2), margin=0.02)
    assert first.answer == "inconclusive"
    assert first.more_repeats is not None
    later = [non_inferiority(*_runs(rng, 0.0, 2 + first.more_repeats), margin=0.02).answer for _ in range(100)]
    assert later.count("yes") >= 65  # 80 % are promised


def test_what_questions_truly_differ_by_is_not_repeated_away() -> None:
    # Half of the questions gain, half lose, every time: no number of repeats tells whether 40 others would.
    base = [[1.0] * 8, [0.0] * 8] * 20
    candidate = [[0.0] * 8, [1.0] * 8] * 20
    result = non_inferiority(base, candidate, 0.01)
    assert (result.answer, result.more_repeats) == ("inconclusive", None)


def test_mcnemar_is_the_binomial_of_the_questions_that_differ() -> None:
    assert mcnemar([1, 1, 0], [1, 1, 0]) == 1.0
    assert mcnemar([1] * 10, [0] * 10) == pytest.approx(2 * 0.5**10)
    assert mcnemar([1, 0, 1, 0], [0, 1, 1, 0]) == 1.0


def test_paired_bootstrap_agrees_with_the_t_interval_of_many_questions() -> None:
    rng = np.random.default_rng(0)
    base, candidate = ((rng.random((800, 1)) < p).astype(float).tolist() for p in (0.9, 0.85))
    interval = paired_bootstrap(base, candidate)
    assert interval is not None
    result = non_inferiority(base, candidate, 0.01)
    assert interval.low < result.interval.low < result.interval.high < interval.high
