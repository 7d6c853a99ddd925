"""What all measurements of one trial say together."""

from __future__ import annotations

from collections.abc import Sequence

from dsabench.model.record import Measured, Record
from dsabench.stats.intervals import BootMean, mean_over_boots

_EXTREMES = (".min", ".max")
"""An extreme is one observation; its mean over boots says nothing."""


def averaged(record: Record, records: Sequence[Record]) -> tuple[Record, ...]:
    """The records of all boots that measured the record's trial in its environment.

    Empty where there is one boot. Confirmation boots alone where there are several: the search picks its winner by the
    luck it had. The record itself may then not be among them.
    """
    same = tuple(
        one
        for one in records
        if one.id == record.id
        and one.environment.fingerprint == record.environment.fingerprint
        and isinstance(one.outcome, Measured)
    )
    confirmed = tuple(one for one in same if one.phase == "confirm")
    same = confirmed if len({one.boot for one in confirmed}) > 1 else same
    return same if len({one.boot for one in same}) > 1 else ()


def repeats_of(record: Record, records: Sequence[Record]) -> dict[str, BootMean]:
    """Metric → its mean over those boots. A metric that some boot lacks (too few requests) counts the others."""
    values: dict[str, dict[str, list[float]]] = {}
    for one in averaged(record, records):
        for name, metric in one.outcome.metrics.items() if isinstance(one.outcome, Measured) else ():
            if not name.endswith(_EXTREMES):
                values.setdefault(name, {}).setdefault(one.boot, []).append(metric.value)
    found = {name: mean_over_boots(of_metric) for name, of_metric in values.items()}
    return {name: one for name, one in found.items() if one is not None}
