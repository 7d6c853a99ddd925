"""Two sets of records held against each other, with the boot as the unit of replication."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dsabench.errors import InputError
from dsabench.model.metrics import METRICS
from dsabench.model.outcome import Measured
from dsabench.model.record import Record
from dsabench.model.verdict import Verdict
from dsabench.stats.compare import correct
from dsabench.stats.contrast import BootValue, Contrast, Question, contrast

EQUIVALENCE = 0.01
"""A difference of 1 % or less is none; a family's interval inside it is `no difference`."""

DEFAULT_METRICS = ("output_throughput_tok_s", "ttft_ms.p50", "ttft_ms.p99", "tpot_ms.p50", "itl_ms.p50", "itl_ms.p99")


@dataclass(frozen=True, slots=True)
class Side:
    """One side of a comparison; `name` is how the user called it."""

    name: str
    records: tuple[Record, ...]


@dataclass(frozen=True, slots=True)
class Pair:
    """Records of both sides that measured the same thing."""

    workload: str
    trial: str | None
    base: tuple[Record, ...]
    candidate: tuple[Record, ...]


def compare_sides(base: Side, candidate: Side, metrics: Sequence[str], *, across: bool = False) -> tuple[Verdict, ...]:
    """A verdict per pair and metric that both sides have, Holm-corrected over all of them.

    Args:
        base: what the candidate is held against.
        candidate: the other side.
        metrics: names of `METRICS`; one that a side lacks is left out.
        across: compare although the environments differ.

    Raises:
        InputError: nothing to compare, or the environments differ.

    """
    _check_environments(base, candidate, across=across)
    asked = [
        (pair, metric)
        for pair in match(base, candidate)
        for metric in metrics
        if _values(pair.base, metric) and _values(pair.candidate, metric)
    ]
    if not asked:
        raise InputError(f"{base.name} and {candidate.name} share none of the metrics {', '.join(metrics)}")
    verdicts = correct([_contrast(pair, metric) for pair, metric in asked])
    return tuple(v.model_copy(update={"trial": pair.trial}) for v, (pair, _) in zip(verdicts, asked, strict=True))


def match(base: Side, candidate: Side) -> list[Pair]:
    """Pair by trial where the sides share trials; else by workload where each side has one setting for it.

    Raises:
        InputError: neither is possible.

    """
    left, right = (_by_trial(_measured(side)) for side in (base, candidate))
    shared = [key for key in left if key in right]
    if shared:
        return [Pair(left[key][0].trial.workload.name, key, *_preferred(left[key], right[key])) for key in shared]
    pairs = []
    for workload in dict.fromkeys(record.trial.workload for record in base.records):
        sides = [[r for r in _measured(side) if r.trial.workload == workload] for side in (base, candidate)]
        settings = [len({record.trial.runtime.id for record in records}) for records in sides]
        if settings == [1, 1]:
            pairs.append(Pair(workload.name, None, *_preferred(*(tuple(records) for records in sides))))
    if not pairs:
        raise InputError(
            f"nothing to compare: {base.name} and {candidate.name} share no trial, and no workload has one setting "
            "on each side: name one setting a side as RESULTS#TRIAL"
        )
    return pairs


def _contrast(pair: Pair, metric: str) -> Contrast:
    question = Question(metric, pair.workload, METRICS[metric].direction, _took_turns(pair), EQUIVALENCE)
    return contrast(question, _values(pair.base, metric), _values(pair.candidate, metric))


def _values(records: Sequence[Record], metric: str) -> list[BootValue]:
    return [
        BootValue(record.boot, outcome.metrics[metric].value)
        for record in sorted(records, key=lambda record: record.started_at)
        if isinstance(outcome := record.outcome, Measured) and metric in outcome.metrics
    ]


def _took_turns(pair: Pair) -> bool:
    """Whether the boots alternate in time, one of each side in every two: only then is pairing them meaningful."""
    boots = {
        record.boot: (record.started_at, side)
        for side, records in enumerate((pair.base, pair.candidate))
        for record in records
    }
    sides = [side for _, side in sorted(boots.values())]
    return len(sides) % 2 == 0 and all({sides[i], sides[i + 1]} == {0, 1} for i in range(0, len(sides), 2))


def _measured(side: Side) -> list[Record]:
    return [record for record in side.records if isinstance(record.outcome, Measured)]


def _by_trial(records: Sequence[Record]) -> dict[str, tuple[Record, ...]]:
    found: dict[str, tuple[Record, ...]] = {}
    for record in records:
        found[record.id] = (*found.get(record.id, ()), record)
    return found


def _preferred(
    base: tuple[Record, ...], candidate: tuple[Record, ...]
) -> tuple[tuple[Record, ...], tuple[Record, ...]]:
    """Confirmation records alone where both sides have them: a search picks its winner by the luck it had."""
    confirmed = [tuple(r for r in records if r.phase == "confirm") for records in (base, candidate)]
    return (confirmed[0], confirmed[1]) if all(confirmed) else (base, candidate)


def _check_environments(base: Side, candidate: Side, *, across: bool) -> None:
    prints = [{record.environment.fingerprint for record in side.records} for side in (base, candidate)]
    if across or len(prints[0] | prints[1]) <= 1:
        return
    differing = sorted(
        name
        for name in ("hardware", "runtime")
        if len({getattr(r.environment, name).model_dump_json() for s in (base, candidate) for r in s.records}) > 1
    )
    raise InputError(
        f"{base.name} and {candidate.name} were measured in different environments ({' and '.join(differing)} differ): "
        "--across-environments compares them all the same"
    )
