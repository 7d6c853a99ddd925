"""A first run on a machine whose boots take far longer than its budget was made for."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from program import dsabench
from studies import STUDY, write_study

pytestmark = pytest.mark.timing  # the budget is of seconds

SLOWED = Path(__file__).parents[1] / "slow_boots"


@pytest.mark.parametrize(("boot_s", "least"), [(3.0, 3), (7.0, 2)])
def test_the_first_run_ends_with_best_against_default(tmp_path: Path, boot_s: float, least: int) -> None:
    """The proportions of boots of 20 and 45 s in configs/local.yaml's 300 s."""
    config = write_study(tmp_path, STUDY.replace("max_trials: 6, confirm_boots: 2", "time_s: 50, confirm_boots: 3"))
    env = ("--launch-env", f"PYTHONPATH={SLOWED}", "--launch-env", f"SLOW_BOOT_S={boot_s}")
    done = dsabench("sweep", config, "--results", tmp_path / "results", *env, "--json")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["best"] is not None
    assert len(result["verdicts"]) == 2
    assert {verdict["n_base"] >= least and verdict["n_candidate"] >= least for verdict in result["verdicts"]} == {True}
    assert result["turns"] == "in turns"
