from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from scipy import stats

from dsabench.machine.cpu_use import warn_of_others
from dsabench.model.record import Measured, Metric, Record
from dsabench.reporting.ci_files import github_commands, summary_markdown, write_junit
from dsabench.reporting.comparison import ComparedSide, has_drift_history
from dsabench.reporting.regression import (
    Neighbours,
    Rules,
    count_rounds,
    judge,
    neighbours_of,
    undisturbed,
    undisturbed_rounds,
)
from factories import START, make_record, make_spec

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
    found = judge(*in_turns(6, seed=1, slower_by=0.1), RULES)
    assert (found.standing, found.interleaved) == ("regression", True)
    assert found.sentence.startswith(f"regression: short {METRIC} -")


def test_noise_asks_for_boots_and_quiet_passes() -> None:
    some = judge(*in_turns(5, seed=4, spread=0.05), Rules(metrics=(METRIC,), effect=0.2, looks=2))
    assert some.standing == "undecided"
    assert re.search(r"needs \d+ more boots \(\d+ in all\)", some.sentence)
    hopeless = judge(*in_turns(5, seed=1, spread=0.9), RULES)
    assert "takes more than 1,000 boots a side" in hopeless.sentence
    quiet = judge(*in_turns(8, seed=3, spread=0.004), RULES)
    assert quiet.standing == "passed"
    assert "5%" in quiet.sentence


def test_boots_that_lie_apart_prove_nothing_without_a_history() -> None:
    """However far the sides differ: the machine may have drifted."""
    base, candidate = boots(100, 0.001, 6, seed=1), boots(80, 0.001, 6, seed=2, first=6)
    found = judge(ComparedSide("a", base), ComparedSide("b", candidate), RULES)
    assert (found.standing, found.interleaved) == ("undecided", False)
    assert "more boots now decide nothing, boots in turns do (--in-turns" in found.sentence


def test_a_history_tells_how_far_the_machine_drifts() -> None:
    night = 24 * 60
    nights = [
        record
        for number, level in enumerate((100, 101, 99.5, 100.5, 100.2, 99.8, 100.1, 99.9))
        for record in boots(level, 0.002, 3, seed=number, first=number * night)
    ]
    history = ComparedSide("nightly", tuple(nights))
    slow = judge(history, ComparedSide("b", boots(80, 0.002, 3, seed=20, first=8 * night)), RULES)
    assert (slow.standing, slow.interleaved) == ("regression", False)
    same = judge(history, ComparedSide("b", boots(100.4, 0.002, 3, seed=21, first=8 * night)), RULES)
    assert same.standing != "regression"
    assert has_drift_history(history, METRIC, START.timestamp() + 8 * night * 60)
    assert not has_drift_history(history, METRIC, START.timestamp() + 300 * night * 60)
    assert not has_drift_history(ComparedSide("once", tuple(nights[:3])), METRIC, START.timestamp() + night * 60)


@pytest.mark.parametrize("looks", [1, 2])
def test_two_looks_share_the_chance_of_a_false_alarm(looks: int) -> None:
    assert Rules(metrics=(METRIC,), effect=0.05, looks=looks).alpha == pytest.approx(0.001 / looks)


def in_turns(
    count: int, *, seed: int, spread: float = 0.01, slower_by: float = 0.0, drift: float = 0.0
) -> tuple[ComparedSide, ComparedSide]:
    """Rounds of one boot a side, a minute apart."""
    rng = np.random.default_rng(seed)
    sides: tuple[list[Record], list[Record]] = ([], [])
    for number in range(2 * count):
        side = (number + number // 2) % 2
        value = 100 * float(rng.lognormal(drift * (number // 2), spread)) * (1 - slower_by * side)
        outcome = Measured(metrics={METRIC: Metric(value=value, n=16)})
        sides[side].append(make_record(occasion=number, minute=number, outcome=outcome))
    return ComparedSide("base", tuple(sides[0])), ComparedSide("candidate", tuple(sides[1]))


def disturb(side: ComparedSide, number: int) -> ComparedSide:
    """The side with other processes on the cores in one boot."""
    records = list(side.records)
    outcome = records[number].outcome
    assert isinstance(outcome, Measured)
    busy = outcome.model_copy(update={"warnings": (warn_of_others(0.5) or "",)})
    records[number] = records[number].model_copy(update={"outcome": busy})
    return ComparedSide(side.name, tuple(records))


def test_a_round_is_left_out_with_both_boots_so_the_others_stay_pairs() -> None:
    base, candidate = in_turns(12, seed=3, spread=0.005, slower_by=0.08, drift=0.1)
    busy = disturb(base, 4)
    assert count_rounds(busy, candidate) == 11
    quiet = undisturbed_rounds(busy, candidate)
    assert [len(side.records) for side in quiet] == [11, 11]
    assert base.records[4].boot not in {record.boot for record in quiet[0].records}
    assert candidate.records[4].boot not in {record.boot for record in quiet[1].records}
    rules = Rules(metrics=(METRIC,), effect=0.05, looks=1)
    assert judge(*quiet, rules).standing == "regression"
    # one boot less on one side alone costs its own pair, although the drift would drown the slowdown without pairs
    assert judge(undisturbed(busy), candidate, rules).standing == "regression"


def test_the_boots_that_decided_their_number_give_no_spread() -> None:
    base, candidate = in_turns(20, seed=5)
    rules = Rules(metrics=(METRIC,), effect=0.05, looks=2)
    (all_of_them,), (later,) = (judge(base, candidate, rules, pilot).verdicts for pilot in (0, 5))
    assert later.effect == all_of_them.effect
    logs = [[math.log(_value(record)) for record in side.records] for side in (base, candidate)]
    differences = np.subtract(logs[1], logs[0])
    half = stats.t.isf(rules.alpha / 2, 14) * np.std(differences[5:], ddof=1) / math.sqrt(20)
    assert later.ci_high == pytest.approx(math.expm1(differences.mean() + half))
    few = judge(ComparedSide("a", base.records[:6]), ComparedSide("b", candidate.records[:6]), rules, 5).verdicts[0]
    assert few.verdict == "inconclusive"


def _value(record: Record) -> float:
    assert isinstance(record.outcome, Measured)
    return record.outcome.metrics[METRIC].value


def test_ci_finds_its_files(tmp_path: Path) -> None:
    found = judge(*in_turns(6, seed=1, slower_by=0.1), RULES)
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
    side = ComparedSide("a", boots(100, 0.01, 4, seed=1))
    (first, *rest) = side.records
    assert isinstance(first.outcome, Measured)
    warning = warn_of_others(0.5)
    assert warning is not None
    busy = first.model_copy(update={"outcome": first.outcome.model_copy(update={"warnings": (warning,)})})
    assert undisturbed(ComparedSide("a", (busy, *rest))).records == tuple(rest)
    assert undisturbed(ComparedSide("a", (busy, rest[0]))).records == (busy, rest[0])


def test_a_sweep_as_baseline_keeps_the_boots_of_a_setting_that_was_never_alone() -> None:
    """Its other settings had quiet boots; those are of no use to this one."""
    base = ComparedSide("sweep", boots(100, 0.01, 4, seed=1))
    for number in (0, 1, 2):
        base = disturb(base, number)
    others = tuple(make_record(spec=make_spec(chunked_prefill_size=64), occasion=9 + n, minute=9 + n) for n in range(3))
    whole, candidate = (
        ComparedSide("sweep", (*base.records, *others)),
        ComparedSide("now", boots(100, 0.01, 3, seed=2, first=20)),
    )
    kept = undisturbed(whole)
    assert kept.records == whole.records
    found = judge(kept, undisturbed(candidate), RULES)
    assert found.verdicts[0].n_base == 4
    told = replace(
        found, neighbours=(neighbours_of(whole, kept, candidate), neighbours_of(candidate, candidate, whole))
    )
    assert told.sentence.endswith(
        "; neighbours on the measured cores: 3 of the baseline's boots counted all the same, for fewer than 3 were quiet"
    )
    quieter = ComparedSide("sweep", (*whole.records, *boots(100, 0.01, 2, seed=3, first=40)))
    assert neighbours_of(quieter, undisturbed(quieter), candidate) == Neighbours(left_out=3)
