"""Named goals: what they expand to, and what is refused."""

from __future__ import annotations

import pytest
import yaml

from dsabench.cli.config import app
from dsabench.config.load import find_mistakes, load_study
from dsabench.model.study import MetricLimit, Objective

from .conftest import MINIMAL, Write

PLAIN = next(line for line in MINIMAL.splitlines() if line.startswith("objective"))


@pytest.mark.parametrize(
    ("goal", "expanded"),
    [
        ("{goal: max-throughput}", Objective(metric="output_throughput_tok_s", direction="maximize")),
        (
            "{goal: max-throughput-under-slo, ttft_p90_ms: 3000, tpot_p90_ms: 50}",
            Objective(
                metric="output_throughput_tok_s",
                direction="maximize",
                constraints=(MetricLimit(metric="ttft_ms.p90", max=3000), MetricLimit(metric="tpot_ms.p90", max=50)),
            ),
        ),
        ("{goal: min-latency}", Objective(metric="e2e_ms.p50", direction="minimize")),
    ],
)
def test_a_goal_is_an_objective_by_another_name(write: Write, goal: str, expanded: Objective) -> None:
    assert load_study(write(MINIMAL.replace(PLAIN, f"objective: {goal}"))).objective == expanded


@pytest.mark.parametrize(
    ("goal", "said"),
    [
        ("{goal: max-throughput-under-slo}", "objective: max-throughput-under-slo needs a limit: ttft_p90_ms, "),
        ("{goal: max-throughput, e2e_p90_ms: 9}", "objective: max-throughput has no limits; use "),
        ("{goal: fast}", "objective.goal: must be max-throughput, max-throughput-under-slo or min-latency, not 'fast'"),
        ("{goal: min-latency, ttft_p90: 3}", "objective.ttft_p90: unknown key 'ttft_p90'; did you mean ttft_p90_ms?"),
        ("{goal: min-latency, metric: e2e_ms.p50}", "objective.metric: key 'metric' does not fit the other keys here"),
    ],
)
def test_a_wrong_goal_is_one_line(write: Write, goal: str, said: str) -> None:
    (mistake,) = find_mistakes(write(MINIMAL.replace(PLAIN, f"objective: {goal}")))
    assert said in str(mistake)


def test_show_prints_what_a_goal_expands_to_and_no_secret(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    text = MINIMAL.replace(PLAIN, "objective: {goal: min-latency}").replace(
        "kind: reference", "kind: reference, launch: {env: {HF_TOKEN: hf_very_secret}}"
    )
    path = write(text)
    assert app(args=["check", "--show", str(path)], standalone_mode=False) in (None, 0)
    shown = yaml.safe_load(capsys.readouterr().out)
    assert shown["objective"] == {"metric": "e2e_ms.p50", "direction": "minimize", "constraints": [], "numerics": "any"}
    assert shown["budget"]["confirm_boots"] == 3
    assert shown["runtime"]["launch"]["env"] == {"HF_TOKEN": "(not shown)"}
