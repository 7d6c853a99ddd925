from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree as ET

import numpy as np
import pytest

from dsabench.model.outcome import Measured, Metric
from dsabench.model.record import Record
from dsabench.probes.neighbours import warn_of
from dsabench.reporting.ci_files import github_commands, summary_markdown, write_junit
from dsabench.reporting.comparison import Side
from dsabench.reporting.regression import Rules, judge, undisturbed
from dsabench.stats.power import boots_needed, boots_needed_beside
from factories import make_record

METRIC = "total_throughput_tok_s"
RULES = Rules(metrics=(METRIC,), effect=0.05, looks=1)


def boots(mean: float, spread: float, count: int, *, seed: int, first: int = 0) -> tuple[Record, ...]:
    values = mean * np.random.default_rng(seed).lognormal(0.0, spread, count)
    return tuple(
        make_record(
            occasion=first + number, minute=first + number,
            outcome=Measured(metrics={METRIC: Metric(value=float(value), n=16)}),
        )
        for number, value in enumerate(values)
    )  # fmt: skip


def test_a_slowdown_beyond_the_noise_is_a_regression() -> None:
    found = judge(Side("a", boots(100, 0.01, 6, seed=1)), Side("b", boots(90, 0.01, 6, seed=2, first=6)), RULES)
    assert found.standing == "regression"
    assert found.sentence.startswith(f"regression: short {METRIC} -")


def test_noise_asks_for_boots_and_quiet_passes() -> None:
    noisy = judge(Side("a", boots(100, 0.2, 40, seed=1)), Side("b", boots(100, 0.2, 3, seed=2, first=40)), RULES)
    assert noisy.standing == "undecided"
    assert "no number of boots beside the baseline's" in noisy.sentence
    both = Rules(metrics=(METRIC,), effect=0.2, looks=2, both_grow=True)
    some = judge(Side("a", boots(100, 0.05, 5, seed=1)), Side("b", boots(100, 0.05, 5, seed=2, first=5)), both)
    assert re.search(r"needs \d+ more boots \(\d+ in all\)", some.sentence)
    quiet = judge(Side("a", boots(100, 0.004, 8, seed=3)), Side("b", boots(100, 0.004, 8, seed=4, first=8)), RULES)
    assert quiet.standing == "passed"
    assert "5%" in quiet.sentence


def test_the_boots_asked_for_show_the_effect() -> None:
    alone = boots_needed(0.03, 0.05, paired=False, alpha=0.05)
    assert alone is not None
    beside = boots_needed_beside(0.03, 0.05, alone, alpha=0.05)
    assert beside == alone
    assert (boots_needed_beside(0.03, 0.05, 4 * alone, alpha=0.05) or 0) < alone
    assert boots_needed_beside(0.03, 0.05, 2, alpha=0.05) is None


@pytest.mark.parametrize("looks", [1, 2])
def test_two_looks_share_the_chance_of_a_false_alarm(looks: int) -> None:
    assert Rules(metrics=(METRIC,), effect=0.05, looks=looks).alpha == pytest.approx(0.001 / looks)


def test_ci_finds_its_files(tmp_path: Path) -> None:
    found = judge(Side("a", boots(100, 0.01, 6, seed=1)), Side("b", boots(90, 0.01, 6, seed=2, first=6)), RULES)
    write_junit(
        tmp_path / "deep" / "junit.xml", "nightly <h200>", found, ["chat: exited in boot: \x00\x1b[31m</error>"], 12.0
    )
    suite = ET.parse(tmp_path / "deep" / "junit.xml").getroot().find("testsuite")
    assert suite is not None
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors"), suite.get("skipped")) == (
        "2",
        "1",
        "1",
        "0",
    )
    assert [case.get("name") for case in suite.iter("testcase")] == [METRIC, "failed trial 1"]
    (line,) = github_commands("a: b,\n::error::x", found)
    assert line.startswith("::error title=a%3A b%2C%0A%3A%3Aerror%3A%3Ax::short")
    assert "\n" not in line
    assert "🔴 worse" in summary_markdown("t", found, ["<b>fault"])
    assert "\\<b\\>fault" in summary_markdown("t", found, ["<b>fault"])


def test_boots_with_neighbours_are_left_out_where_others_remain() -> None:
    side = Side("a", boots(100, 0.01, 4, seed=1))
    (first, *rest) = side.records
    assert isinstance(first.outcome, Measured)
    warning = warn_of(0.5)
    assert warning is not None
    busy = first.model_copy(update={"outcome": first.outcome.model_copy(update={"warnings": (warning,)})})
    assert undisturbed(Side("a", (busy, *rest))).records == tuple(rest)
    assert undisturbed(Side("a", (busy, rest[0]))).records == (busy, rest[0])
