"""Steps of published tuning ladders, served with 16 % between boots: dsabench believes those that are real."""

from __future__ import annotations

from pathlib import Path

import pytest

from ladder import STEPS, measure


@pytest.mark.slow
@pytest.mark.parametrize("name", ["parser", "dp", "memory", "kernels"])
def test_a_step_is_believed_as_far_as_boots_bear_it_out(tmp_path: Path, name: str) -> None:
    step = STEPS[name]
    found = measure(tmp_path, step)
    (verdict,) = found["verdicts"]
    assert verdict["verdict"] in step.expected
    assert verdict["ci_low"] <= step.truth <= verdict["ci_high"]
    assert found["turns"] == "in turns"
