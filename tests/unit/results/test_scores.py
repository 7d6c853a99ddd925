"""Which boots are pairs: those that took turns, as the journal says it."""

from __future__ import annotations

from datetime import timedelta

import pytest

from dsabench.model.capacity import LoadProbe
from dsabench.model.record import Measured, Metric, Record
from dsabench.model.study import Objective
from dsabench.model.verdict import Verdict
from dsabench.reporting.comparison import ComparedSide, compare_sides
from dsabench.results.scores import (
    compare_settings,
    in_turns,
    lost_requests,
    pair_boots,
    rank_key,
    score_setting,
    worst_regrets,
)
from factories import ENVIRONMENT, START, make_failure, make_record, make_spec, make_workload
from studies import STUDY, load_study

BASE, BEST = make_spec(prefix_cache=False), make_spec(prefix_cache=True)


def boot(side: str, minute: float, *, turn: int | None = None, value: float | None = 100.0, **changes) -> Record:
    outcome = {"outcome": make_failure()} if value is None else {"value": value}
    record = make_record(spec=BASE if side == "A" else BEST, phase="confirm", boot=f"{side}{minute}", **outcome)
    started = START + timedelta(minutes=minute)
    return record.model_copy(update={"started_at": started, "turn": turn, **changes})


def paired(records: list[Record]) -> tuple[list[str], int]:
    sides = [[one for one in records if one.trial.runtime == spec] for spec in (BASE, BEST)]
    found = pair_boots(*sides)
    return [f"{one.boot} {other.boot}" for one, other in found.pairs], found.alone


@pytest.mark.parametrize("with_turns", [True, False])
def test_turns_are_pairs(with_turns: bool) -> None:
    order = "ABBAAB"
    records = [boot(side, minute, turn=minute // 2 if with_turns else None) for minute, side in enumerate(order)]
    assert paired(records) == (["A0 B1", "A3 B2", "A4 B5"], 0)


@pytest.mark.parametrize("with_turns", [True, False])
def test_a_lost_boot_moves_no_other_to_another_partner(with_turns: bool) -> None:
    order = "ABBAAB"
    records = [boot(side, minute, turn=minute // 2 if with_turns else None) for minute, side in enumerate(order)]
    del records[0]
    assert paired(records) == (["A3 B2", "A4 B5"], 1)


def test_a_lost_boot_that_was_measured_again_later_is_a_pair_but_did_not_take_turns() -> None:
    records = [boot("A", 200, turn=0), boot("B", 1, turn=0), boot("B", 2, turn=1), boot("A", 3, turn=1)]
    assert paired(records) == (["A200 B1", "A3 B2"], 0)
    sides = [tuple(one for one in records if one.trial.runtime == spec) for spec in (BASE, BEST)]
    assert not pair_boots(*sides).took_turns
    assert pair_boots(*sides).apart_s == pytest.approx(199 * 60 - 1)


def test_a_boot_that_failed_keeps_its_turn(tmp_path) -> None:
    """The second of the default failed: the third pair stays the third, whatever the values are."""
    config = load_study(tmp_path, STUDY)
    name = config.workloads[0].name
    values = {"A": [100.0, None, 300.0, 400.0], "B": [110.0, 220.0, 330.0, 440.0]}
    sides = [
        tuple(boot(side, 2 * i + (side == "B"), turn=i, value=value) for i, value in enumerate(values[side]))
        for side in "AB"
    ]
    verdict = compare_settings([name], ["output_throughput_tok_s"], {name: sides[0]}, {name: sides[1]})[0]
    assert (verdict.n_base, verdict.n_candidate) == (3, 3)
    assert verdict.effect == pytest.approx(0.1), "100 with 110 and 300 with 330; by index 300 would meet 220"
    assert "1 boot without a partner left out" in verdict.reason
    assert in_turns(config, {name: sides[0]}, {name: sides[1]}) == "in turns"


def test_boots_of_another_finalist_are_no_lost_partners() -> None:
    others = [boot("A", minute, turn=minute // 2) for minute in (0, 3)]
    records = [*others, boot("A", 10, turn=2), boot("B", 11, turn=2), boot("B", 12, turn=3), boot("A", 13, turn=3)]
    assert paired(records) == (["A10 B11", "A13 B12"], 0)
    untold = [one.model_copy(update={"turn": None}) for one in records]
    assert paired(untold) == (["A10 B11", "A13 B12"], 0)


def test_boots_at_once_are_paired_with_the_one_that_began_nearest() -> None:
    lanes = {"labels": ("one of 4 lanes",)}
    records = [boot("A", 0.0, **lanes), boot("A", 0.3, **lanes), boot("B", 0.1, **lanes), boot("B", 0.4, **lanes)]
    assert paired(records) == (["A0.0 B0.1", "A0.3 B0.4"], 0)


def test_what_stood_far_apart_is_not_said_to_have_taken_turns(tmp_path) -> None:
    config = load_study(tmp_path, STUDY)
    sides = [{config.workloads[0].name: (boot("A", 0),)}, {config.workloads[0].name: (boot("B", 90),)}]
    assert in_turns(config, *sides) == "not in turns: up to 90 minutes between the two of a pair"
    here = boot("B", 1).environment
    elsewhere = here.model_copy(update={"hardware": here.hardware.model_copy(update={"cpu": "another"})})
    moved = {config.workloads[0].name: (boot("B", 1, environment=elsewhere),)}
    assert in_turns(config, sides[0], moved) == "not in turns: on several machines"


def test_a_night_between_two_boots_ends_no_other_pair() -> None:
    """Two folders that took turns, where the third pair was measured on two days: four pairs are judged, and it is said."""
    night = 24 * 60
    minutes = {"A": [0, 4, 8, 12 + night, 16 + night], "B": [2, 6, 10 + night, 14 + night, 18 + night]}
    sides = [
        ComparedSide(
            name, tuple(boot(name, at, value=100.0 + i + 5 * (name == "B")) for i, at in enumerate(minutes[name]))
        )
        for name in "AB"
    ]
    (verdict,) = compare_sides(*sides, ["output_throughput_tok_s"])
    assert (verdict.n_base, verdict.n_candidate, verdict.verdict) == (4, 4, "better")
    assert "2 boots without a partner left out" in verdict.reason

    apart = [sides[0], ComparedSide("B", tuple(boot("B", at + 2 * night, value=106.0) for at in range(5)))]
    (unpaired,) = compare_sides(*apart, ["output_throughput_tok_s"])
    assert (unpaired.n_base, unpaired.n_candidate, unpaired.verdict) == (5, 5, "inconclusive")
    assert "did not take turns" in unpaired.reason


def test_a_setting_that_lost_requests_is_not_feasible() -> None:
    objective = Objective(metric="output_throughput_tok_s", direction="maximize")
    metrics = {"output_throughput_tok_s": Metric(value=500.0, n=61), "failed": Metric(value=3, n=64)}
    lossy = make_record(outcome=Measured(metrics=metrics))
    whole = make_record(outcome=Measured(metrics={**metrics, "failed": Metric(value=0, n=64)}))
    assert score_setting(objective, {"chat": [whole]}).is_feasible
    score = score_setting(objective, {"chat": [lossy]})
    assert (score.is_feasible, score.value, score.why_not) == (
        False,
        pytest.approx(500.0),
        "chat: 3 of 64 requests failed",
    )
    assert rank_key(objective, score) < rank_key(
        objective, score_setting(objective, {"chat": [make_record(value=1.0)]})
    )
    assert lost_requests([lossy, whole]) == (3, 128)


SOUGHT = make_workload(slo={"ttft_ms": 100}, max_concurrency=16, capacity={"lowest": 2})
BEARS = Objective(metric="capacity_concurrency", direction="maximize")


def bearing(side: str, turn: int, load: float | None) -> Record:
    """A boot that bears so many requests in flight; None: not even two."""
    probes = (LoadProbe(load=16, attainment=0.1), LoadProbe(load=2, attainment=0.5))
    metrics = {} if load is None else {BEARS.metric: Metric(value=load, n=2)}
    record = make_record(workload=SOUGHT, outcome=Measured(metrics=metrics, probes=probes))
    minute = 2 * turn + (side == "B")
    return boot(side, minute, turn=turn).model_copy(
        update={"id": record.id, "outcome": record.outcome, "trial": record.trial}
    )


def test_a_capacity_below_the_lowest_load_counts_as_that_and_is_not_feasible() -> None:
    score = score_setting(BEARS, {"chat": [bearing("A", 0, None)]})
    assert (score.value, score.is_feasible, score.why_not) == (pytest.approx(2), False, "chat: not even 2 met the SLO")
    assert score_setting(BEARS, {"chat": [bearing("A", 0, 16)]}).is_feasible
    assert (
        score_setting(Objective(metric="ttft_ms.p50", direction="minimize"), {"chat": [bearing("A", 0, None)]}).value
        is None
    )


def test_boots_below_the_lowest_load_are_not_left_out_of_a_verdict() -> None:
    """Left out, they would make a default look better than it is, and a candidate that sometimes bears nothing a winner."""

    def verdict(default: list[float | None], best: list[float | None]) -> Verdict:
        sides = [
            {SOUGHT.name: tuple(bearing(side, turn, load) for turn, load in enumerate(loads))}
            for side, loads in (("A", default), ("B", best))
        ]
        (found,) = compare_settings([SOUGHT.name], [BEARS.metric], *sides)
        return found

    better = verdict([4, 4, None, 5], [10, 11, 10, 12])
    assert (better.verdict, better.n_base) == ("better", 4)
    assert "1 boot of the base met the SLO under no load, so the lowest counts" in better.reason
    assert verdict([4, 4, 4, 5], [10, 11, None, 12]).verdict == "inconclusive"
    assert verdict([4, 4, 4, 5], [None, None, None, None]).verdict == "worse"
    assert "2 boots of the candidate met the SLO under the highest load" in verdict([4, 4, 5], [16, 12, 16]).reason


def test_each_load_is_held_against_the_machine_that_measured_it() -> None:
    objective = Objective(metric="output_throughput_tok_s", direction="maximize")
    there = ENVIRONMENT.model_copy(update={"machine": "b"})
    here, moved = make_record(value=100.0), make_record(value=80.0).model_copy(update={"environment": there})
    score = score_setting(objective, {"chat": [here], "document": [moved]}, {"b": 0.8})
    assert score.value == pytest.approx(100.0)


def test_the_worst_case_is_the_largest_loss_against_the_best_of_a_workload() -> None:
    values = {"a": {"chat": 100.0, "document": 80.0}, "b": {"chat": 90.0, "document": 100.0}}
    assert worst_regrets("maximize", values) == {
        "a": (pytest.approx(0.2), "document"),
        "b": (pytest.approx(0.1), "chat"),
    }
    assert worst_regrets("minimize", values) == {
        "a": (pytest.approx(1 / 9), "chat"),
        "b": (pytest.approx(0.25), "document"),
    }
