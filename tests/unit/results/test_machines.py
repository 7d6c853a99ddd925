from __future__ import annotations

import pytest

from dsabench.machine.environment import machine_hash
from dsabench.model.record import Measured, Metric, Record
from dsabench.reporting.comparison import ComparedSide, contrasts, judged
from dsabench.results.machines import clock_words, low_clocks, machine_name
from dsabench.results.scores import pair_boots
from dsabench.stats.occasions import ApartOptions
from factories import make_record, make_spec

METRIC = "output_throughput_tok_s"


def boot(value: float, minute: int, machine: str | None, turn: int | None = None, **knobs: int) -> Record:
    outcome = Measured(metrics={METRIC: Metric(value=value, n=16)})
    record = make_record(spec=make_spec(**knobs), minute=minute, outcome=outcome, phase="confirm")
    environment = record.environment.model_copy(update={"machine": machine})
    return record.model_copy(update={"environment": environment, "turn": turn})


def turns(machines: str) -> tuple[tuple[Record, ...], tuple[Record, ...]]:
    """Pairs of boots in turns; the letters name the machines of base, candidate, base, …"""
    base = tuple(boot(100 + i, 2 * i, machines[2 * i], i) for i in range(len(machines) // 2))
    best = tuple(boot(110 + i, 2 * i + 1, machines[2 * i + 1], i, page_size=1) for i in range(len(machines) // 2))
    return base, best


def compare(base: tuple[Record, ...], best: tuple[Record, ...], **apart: bool):
    sides = ComparedSide("base", base), ComparedSide("best", best)
    (verdict,) = judged(contrasts(*sides, (METRIC,), apart=ApartOptions(**apart)))
    return verdict


def test_pairs_lie_within_machines_and_several_are_named() -> None:
    assert pair_boots(*turns("aaaaaa")).took_turns
    several = compare(*turns("aabbcc"))
    assert several.verdict == "better"
    assert several.reason.endswith("on 3 machines, each pair on one")
    assert not pair_boots(*turns("abbaab")).took_turns


def test_sides_of_two_machines_get_no_verdict_whatever_is_said_of_drift() -> None:
    verdict = compare(*turns("ababab"), widen=True)
    assert verdict.verdict == "inconclusive"
    assert verdict.reason.endswith("the sides were measured on different machines")


def test_a_machine_is_known_again_and_older_records_by_their_host() -> None:
    assert machine_hash() == machine_hash()
    assert len(machine_hash()) == 12
    assert machine_hash(["GPU-1", "GPU-2"]) == machine_hash(["GPU-2", "GPU-1"])
    assert len({machine_hash(), machine_hash(["GPU-1"]), machine_hash(["GPU-2"])}) == 3
    record = boot(1.0, 0, None)
    assert machine_name(record.environment) == record.environment.host


def clocked(mhz: float, number: int, **knobs: int) -> Record:
    metrics = {METRIC: Metric(value=100.0, n=16), "gpu.sm_clock_mhz.mean": Metric(value=mhz, n=50)}
    return make_record(spec=make_spec(**knobs), minute=number, boot=f"b{number}", outcome=Measured(metrics=metrics))


def test_a_boot_at_lower_clocks_than_its_like_is_marked() -> None:
    like = [clocked(mhz, number) for number, mhz in enumerate((1980.0, 1975.0, 1700.0, 1970.0))]
    other = [clocked(1500.0, 9, page_size=1)]  # another setting loads the GPU differently
    assert low_clocks([*like, *other]) == {"b2": pytest.approx(1 - 1700 / 1972.5)}
    assert clock_words(low_clocks(like)) == "1 boot at clocks up to 14 % below the others of the setting"
    assert low_clocks(like[:2]) == {}
    assert clock_words({}) == ""
