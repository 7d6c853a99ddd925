"""Which machine a record is of, and which boots ran at lower clocks than their like."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from statistics import median

from dsabench.model.environment import Environment
from dsabench.model.record import Measured, Record
from dsabench.model.verdict import BOOTS_MIN

CLOCK = "gpu.sm_clock_mhz.mean"
LOW_CLOCK = 0.03
"""Boots of one setting on one model of GPU differ by about 1 %; beyond this their times are those of another clock."""


def machine_name(environment: Environment) -> str:
    """What tells machines apart: the hashed identity, or the host's name in records that are older than it."""
    return environment.machine or environment.host


def machines_of(records: Iterable[Record]) -> set[str]:
    """The machines of these records."""
    return {machine_name(record.environment) for record in records}


def low_clocks(records: Iterable[Record]) -> dict[str, float]:
    """Boot → how far its clocks were below the median of the boots that measured the same trial, as a share; only those that were.

    Other settings load a GPU differently, and its clocks follow the load, so only equal trials are compared.
    """
    of_trial: dict[str, dict[str, float]] = {}
    for record in records:
        outcome = record.outcome
        if isinstance(outcome, Measured) and (clock := outcome.metrics.get(CLOCK)) is not None:
            of_trial.setdefault(record.id, {})[record.boot] = clock.value
    found: dict[str, float] = {}
    for clocks in of_trial.values():
        usual = median(clocks.values())
        if len(clocks) < BOOTS_MIN or usual <= 0.0:
            continue
        for boot, mhz in clocks.items():
            below = 1.0 - mhz / usual
            if below > LOW_CLOCK:
                found[boot] = max(below, found.get(boot, 0.0))
    return found


def clock_words(low: Mapping[str, float]) -> str:
    """Of `low_clocks`: `1 boot at clocks up to 12 % below the others of the setting`, or empty."""
    if not low:
        return ""
    many = "1 boot" if len(low) == 1 else f"{len(low)} boots"
    return f"{many} at clocks up to {100 * max(low.values()):.0f} % below the others of the setting"
