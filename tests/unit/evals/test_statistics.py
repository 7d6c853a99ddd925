from __future__ import annotations

import math

import numpy as np
import pytest

from dsabench.evals.statistics import (
    majority,
    mcnemar,
    mean_score,
    non_inferiority,
    paired_bootstrap,
    pass_at_k,
    spread_of_runs,
)


def test_error_is_of_the_questions_and_not_of_the_answers() -> None:
    scores = [[1.0] * 8, [0.0] * 8] * 20
    mean = mean_score(scores)
    assert mean.value == 0.5
    assert mean.standard_error == pytest.approx(np.std([1.0, 0.0] * 20, ddof=1) / math.sqrt(40))
    assert mean.questions == 40


def test_one_question_has_no_error_and_everything_right_still_has_a_width() -> None:
    assert mean_score([[1.0, 0.0]]).standard_error is None
    all_right = mean_score([[1.0]] * 20)
    assert all_right.standard_error == 0.0
    assert all_right.interval.low == pytest.approx(0.8389, abs=1e-4)
    assert all_right.interval.high == 1.0


@pytest.mark.parametrize("share", [0.5, 0.9])
@pytest.mark.parametrize("repeats", [1, 4])
def test_intervals_hold_the_truth_as_often_as_they_say(share, repeats) -> None:
    rng = np.random.default_rng(5)
    # Questions differ in difficulty, so answers to one question go together.
    hard = rng.beta(4 * share, 4 * (1 - share), size=(120, 60))
    answers = rng.random((120, 60, repeats)) < hard[..., None]
    held = 0
    for draw in answers:
        interval = mean_score(draw.astype(float).tolist()).interval
        held += interval.low <= share <= interval.high
    assert held / 120 >= 0.88


def test_pass_at_k_is_the_share_of_draws_with_a_right_one() -> None:
    assert pass_at_k([1, 0, 0, 0], 1) == 0.25
    assert pass_at_k([1, 0, 0, 0], 2) == pytest.approx(0.5)
    assert pass_at_k([0, 0], 2) == 0.0
    assert pass_at_k([1, 0], 2) == 1.0


def test_majority_shares_a_tie_and_ignores_no_answer() -> None:
    assert majority(["7", "7", "8", None], [1, 1, 0, 0]) == 1.0
    assert majority(["7", "8"], [1, 0]) == 0.5
    assert majority([None, None], [0, 0]) == 0.0
    # Two spellings of the right answer are two candidates, both right, beside one wrong: all tied.
    assert majority(["7", "07", "8"], [1, 1, 0]) == pytest.approx(2 / 3)


def test_spread_of_runs_gives_the_figures_of_the_published_tables() -> None:
    # 87.50% ± 1.67% over four passes of 30 problems: 26, 26, 26 and 27 right.
    passes = [[1.0] * right + [0.0] * (30 - right) for right in (26, 26, 26, 27)]
    assert spread_of_runs(list(zip(*passes, strict=True))) == pytest.approx(0.0167, abs=5e-5)
    assert spread_of_runs([[1.0], [0.0]]) is None


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
