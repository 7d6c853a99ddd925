"""Finalists: boots of each, and the gate's verdict as a constraint."""

from __future__ import annotations

import itertools
import math
import random
from pathlib import Path

import pytest

from dsabench.errors import InputError
from dsabench.model.study import Budget, GateSpec
from dsabench.model.study_result import AccuracyRefusal, Finalist
from dsabench.model.verdict import Verdict, VerdictWord
from dsabench.results.scores import judge, scored_settings
from dsabench.results.study_records import StudyRecords
from dsabench.study.budget import RunLimits, why_confirmation_stops
from dsabench.study.next_boot import (
    challenger,
    confirm_boots_left,
    final_choice,
    next_baseline_boot,
    next_confirm_boot,
    next_search_boot,
    observations,
)
from dsabench.study.plan import has_next_boot
from dsabench.study.proposers import make_proposer
from dsabench.study.session import SILENT
from dsabench.study.study import measure
from dsabench.study.verdict import apply_gate, conclude
from factories import ENVIRONMENT
from studies import STUDY, boot_records, load_study, make_context

_minutes = itertools.count()


def take(ledger: StudyRecords, step, value: float, turn: int | None = None) -> None:
    minute = next(_minutes)
    for record in boot_records(step, ledger, f"boot-{minute}", value, minute):
        ledger.add(record.model_copy(update={"turn": turn}))


@pytest.fixture
def ledger(tmp_path) -> StudyRecords:
    """Four settings searched: 100 (the default), 130, 120, 110."""
    found = StudyRecords(load_study(tmp_path), ENVIRONMENT.fingerprint, ())
    for value in (100.0, 130.0, 120.0, 110.0):
        step = next_baseline_boot(found, 0) or next_search_boot(found, 0, make_proposer(found.config))
        assert step is not None
        take(found, step, value)
    return found


def confirm(ledger: StudyRecords, index: int, refused: set[str], values: dict[bool, float]):
    """Boot the next finalist against the default; returns it, and who was booted."""
    best = challenger(ledger, 0, refused)
    assert best is not None
    turns = []
    while (step := next_confirm_boot(ledger, 0, best.spec, index)) is not None:
        is_default = step.spec == ledger.config.default
        turns.append(("default" if is_default else "best", step.is_last))
        take(ledger, step, values[is_default] + next(_minutes) % 3 / 100)
    return best, turns


def test_each_finalist_has_boots_of_the_default_of_its_own(ledger) -> None:
    first, turns = confirm(ledger, 0, set(), {True: 100.0, False: 130.0})
    assert turns == [("default", False), ("best", False), ("best", True), ("default", True)]
    assert confirm_boots_left(ledger, 0, first.spec, 0) == 0
    second, again = confirm(ledger, 1, {first.spec.id}, {True: 50.0, False: 60.0})
    assert again == turns
    assert second.score.value == pytest.approx(120.0)
    # Each is held against the boots that it took turns with.
    effects = [
        {verdict.effect for verdict in judge(ledger, one.spec, 0, index).verdicts}
        for index, one in ((0, first), (1, second))
    ]
    assert all(effect == pytest.approx(0.3, abs=0.01) for effect in effects[0])
    assert all(effect == pytest.approx(0.2, abs=0.01) for effect in effects[1])


def stopping(tmp_path: Path, base: float, best: float, spread: float, seed: int) -> tuple[StudyRecords, list[int]]:
    """Two finalists, confirmed with 6 boots a side at most; who was booted how often in all after each."""
    config = load_study(tmp_path)
    budget = config.budget.model_copy(update={"confirm_boots": 6, "max_boots": None, "stop_when_decided": True})
    found = StudyRecords(config.model_copy(update={"budget": budget}), ENVIRONMENT.fingerprint, ())
    for value in (100.0, 130.0, 120.0, 110.0):
        step = next_baseline_boot(found, 0) or next_search_boot(found, 0, make_proposer(found.config))
        assert step is not None
        take(found, step, value)
    rng, refused, counts = random.Random(seed), set[str](), []
    for index in (0, 1):
        finalist = challenger(found, 0, refused)
        assert finalist is not None
        while (step := next_confirm_boot(found, 0, finalist.spec, index)) is not None:
            level = base if step.spec == found.config.default else best
            take(found, step, level * math.exp(rng.gauss(0.0, spread)), turn=step.turn)
        counts.append(found.boots(0, "confirm"))
        refused.add(finalist.spec.id)
    return found, counts


def test_a_clear_effect_stops_the_confirmation_early(tmp_path: Path) -> None:
    ledger, counts = stopping(tmp_path, 100.0, 130.0, 0.003, seed=1)
    assert counts == [6, 12]  # 3 of 6 boots a side, for either finalist
    first = challenger(ledger, 0)
    assert first is not None
    found = judge(ledger, first.spec, 0, 0)
    assert found.stopped == "decided after 3 of 6 boots a side"
    assert {(one.verdict, one.n_base, one.n_candidate) for one in found.verdicts} == {("better", 3, 3)}
    assert found.level == pytest.approx(0.05 * 0.2 / 6)
    assert confirm_boots_left(ledger, 0, first.spec, 0) == 0
    result = conclude(ledger, make_context(ledger.config, tmp_path / "r", ledger.records))
    assert (result.stopped_early, result.unconfirmed) == (found.stopped, 0)


def test_a_hopeless_confirmation_is_given_up(tmp_path: Path) -> None:
    ledger, counts = stopping(tmp_path, 100.0, 100.0, 0.05, seed=4)
    assert counts[0] < 12
    first = challenger(ledger, 0)
    assert first is not None
    found = judge(ledger, first.spec, 0, 0)
    assert "more boots would hardly decide it" in found.stopped
    assert {one.verdict for one in found.verdicts} == {"inconclusive"}


def test_a_finalist_whose_boots_cannot_be_finished_is_not_begun(ledger) -> None:
    first, _ = confirm(ledger, 0, set(), {True: 100.0, False: 130.0})
    second = challenger(ledger, 0, {first.spec.id})
    assert second is not None
    left = confirm_boots_left(ledger, 0, second.spec, 1)
    assert left == 4
    assert ledger.boots(0) == 8
    assert why_confirmation_stops(ledger, RunLimits(Budget(max_boots=12), 0), left) is None
    assert (
        why_confirmation_stops(ledger, RunLimits(Budget(max_boots=11), 0), left) == "11 boots are the limit (max_boots)"
    )
    assert why_confirmation_stops(ledger, RunLimits(Budget(time_s=3.0), 0), left) == "the time is up (3 s)"


async def test_what_a_conclusion_lacks_is_counted(ledger, tmp_path) -> None:
    closed = make_context(ledger.config, tmp_path / "searched", ledger.records, closed="only the records were asked")
    assert not has_next_boot(ledger, closed.limits)
    result = await measure(closed, SILENT)
    assert (result.stopped, result.unconfirmed, result.measured_now) == (
        "the confirmation was cut short: only the records were asked",
        4,
        0,
    )
    first, _ = confirm(ledger, 0, set(), {True: 100.0, False: 130.0})
    closed = make_context(ledger.config, tmp_path / "confirmed", ledger.records, closed="only the records were asked")
    done = await measure(closed, SILENT)
    assert (done.unconfirmed, len(done.verdicts) > 0, done.stopped) == (0, True, None)
    # After one that is less accurate the next best is still to be confirmed, where the gate asks for more than one.
    refused = Finalist(first, 0, (told("worse", -0.1),))
    for finalists, lacking in ((1, 0), (3, 4)):
        gate = GateSpec(eval="gsm8k", finalists=finalists)
        config = ledger.config.model_copy(update={"gate": gate})
        gated = StudyRecords(config, ENVIRONMENT.fingerprint, ledger.records)
        context = make_context(config, tmp_path / "gated", budget=Budget())
        assert conclude(gated, context, [refused]).unconfirmed == lacking


def told(word: VerdictWord, effect: float | None = None) -> Verdict:
    return Verdict(
        metric="score",
        workload="gsm8k",
        unit="points",
        verdict=word,
        effect=effect,
        n_base=9,
        n_candidate=9,
        reason="r",
    )


def test_what_a_gate_refused_in_the_search_is_no_finalist_and_the_strategy_learns_of_it(ledger) -> None:
    fastest, second = sorted(scored_settings(ledger, 0), key=lambda one: -(one.score.value or 0.0))[:2]
    assert challenger(ledger, 0) == fastest
    ledger.refuse({fastest.spec.id: AccuracyRefusal(4.0, "less accurate: -5.00 points (gsm8k)")})
    assert challenger(ledger, 0) == second
    (refused,) = (one for one in scored_settings(ledger, 0) if not one.score.is_feasible)
    assert (refused.spec, refused.score.value) == (fastest.spec, fastest.score.value)
    assert refused.score.why_not == "less accurate: -5.00 points (gsm8k)"
    assert [one.violation for one in observations(ledger, 0) if one.violation] == [4.0]
    ledger.refuse({})
    assert challenger(ledger, 0) == fastest


def test_what_does_not_pass_is_infeasible_and_the_one_that_passes_wins(ledger) -> None:
    found = sorted(scored_settings(ledger, 0), key=lambda one: -(one.score.value or 0.0))
    worse, undecided, passed = (
        Finalist(found[0], 0, (told("worse", -0.03),)),
        Finalist(found[1], 1, (told("inconclusive", -0.001),)),
        Finalist(found[1], 1, (told("no difference", 0.0),)),
    )
    assert final_choice([]) is None
    assert final_choice([worse, passed]) is passed
    assert final_choice([worse, undecided]) is undecided
    assert final_choice([worse, Finalist(found[1], 1, (told("worse", -0.02),))]) is worse
    gate = GateSpec(eval="gsm8k", margin=0.01)
    violations = {one.spec.id: one.score.violation for one in apply_gate(found, [worse, undecided], [gate])}
    assert violations[found[0].spec.id] == pytest.approx(2.0)  # two margins beyond the margin
    assert violations[found[1].spec.id] == 1.0
    assert violations[found[2].spec.id] == 0.0
    assert {one.score.violation for one in apply_gate(found, [passed], [gate])} == {0.0}


def test_a_gate_that_asks_every_setting_needs_no_confirmation(tmp_path) -> None:
    text = STUDY.replace("confirm_boots: 2", "confirm_boots: 0") + "gate: [{eval: gsm8k-form, ask: settings}]\n"
    config = load_study(tmp_path, text)
    assert [gate.eval for gate in config.gates_of_settings] == ["gsm8k-form"]
    with pytest.raises(InputError, match="with `ask: settings` every setting of the search"):
        load_study(tmp_path, text.replace(", ask: settings", ""))
