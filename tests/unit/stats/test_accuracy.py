from __future__ import annotations

import math

import numpy as np
import pytest

from dsabench.stats.accuracy import majority, mean_score, pass_at_k, spread_of_runs


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
