from __future__ import annotations

import numpy as np
import pytest

from dsabench.config.load import load_eval
from dsabench.errors import InputError
from dsabench.evals.gate_plan import plan_gate
from dsabench.evals.statistics import non_inferiority
from dsabench.model.study import GateSpec

GPQA, AIME = load_eval("gpqa"), load_eval("aime25")


@pytest.mark.parametrize(("repeats", "margin"), [(4, 0.01), (32, 0.01), (4, 0.04), (8, 0.03)])
def test_the_chance_is_what_equal_settings_get(repeats: int, margin: float) -> None:
    """Questions of evenly spread difficulty (a beta distribution with a third of the variance between questions)."""
    plan = plan_gate(GateSpec(eval="gpqa", repeat=repeats, margin=margin), GPQA, 198, "m")
    rng, runs = np.random.default_rng(5), 400
    passed = 0
    for _ in range(runs):
        chances = rng.beta(
            2 * plan.score, 2 * (1 - plan.score), plan.questions
        )  # between questions: a third of p (1 - p)
        sides = (rng.random((2, plan.questions, repeats)) < chances[None, :, None]).astype(float)
        passed += non_inferiority(sides[0].tolist(), sides[1].tolist(), margin).answer == "yes"
    error = (plan.chance * (1 - plan.chance) / runs) ** 0.5
    assert passed / runs == pytest.approx(plan.chance, abs=3 * error + 0.01)


def test_what_a_gate_can_decide_is_one_line_with_the_ways_out() -> None:
    line = plan_gate(GateSpec(eval="gpqa", repeat=4), GPQA, 198, "m").line()
    assert line.startswith(
        "gpqa, 198 questions × 4, margin 1 point: accepts an equally accurate setting in at least 15 of"
    )
    assert line.endswith("for 80 of 100: repeat 68 or a margin of 4.2 points")
    assert "repeat 68" not in plan_gate(GateSpec(eval="gpqa", repeat=68), GPQA, 198, "m").line()


def test_the_score_is_that_published_for_the_model() -> None:
    of_exp, of_v32 = (
        plan_gate(GateSpec(eval="gpqa", repeat=32), GPQA, 198, f"deepseek-ai/{name}")
        for name in ("DeepSeek-V3.2-Exp", "DeepSeek-V3.2")
    )
    assert (of_exp.score, of_v32.score) == (0.797, 0.84)
    assert plan_gate(GateSpec(eval="gpqa", repeat=32), GPQA, 198, "/models/DeepSeek-V3.2/").score == 0.84
    assert plan_gate(GateSpec(eval="gpqa", repeat=32), GPQA, 198, "other").score == 0.797


def test_without_a_number_enough_passes_are_taken() -> None:
    plan = plan_gate(GateSpec(eval="gpqa", margin=0.03), GPQA, 198, "m")
    assert plan.repeats == 8
    assert plan.chance >= 0.8
    assert plan_gate(GateSpec(eval="gpqa", margin=0.03, repeat=7), GPQA, 198, "m").chance < 0.8


def test_a_gate_that_decides_nothing_is_refused() -> None:
    with pytest.raises(InputError, match=r"gate: this decides nothing: aime25, 30 questions × 1, .* in 6 of 100 runs"):
        plan_gate(GateSpec(eval="aime25", repeat=1), AIME, 30, "m")
    with pytest.raises(InputError, match=r"gate: repeat is not stated, and aime25, .*: repeat 314 or a margin of"):
        plan_gate(GateSpec(eval="aime25"), AIME, 30, "m")
