"""Two sets of records held against each other, with the boot as the unit of replication."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dsabench.errors import InputError
from dsabench.model.environment import Environment
from dsabench.model.metrics import METRICS
from dsabench.model.record import Measured, Record
from dsabench.model.verdict import Verdict
from dsabench.stats.compare import BootComparison, BootValue, ComparisonSpec, compare_boots, judge_family

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
    environment: str | None = None


@dataclass(frozen=True, slots=True)
class Asked:
    """How the spread is estimated; see `ComparisonSpec`."""

    one_spread: bool = False
    pilot: tuple[int, int] = (0, 0)


_WELCH = Asked()


def compare_sides(base: Side, candidate: Side, metrics: Sequence[str], *, across: bool = False) -> tuple[Verdict, ...]:
    """A verdict per pair and metric that both sides have, Holm-corrected over all of them.

    Args:
        base: what the candidate is held against.
        candidate: the other side.
        metrics: names of `METRICS`; one that a side lacks is left out.
        across: compare although the environments differ.

    Raises:
        InputError: nothing to compare, or no environment is on both sides.

    """
    return judged(contrasts(base, candidate, metrics, across=across))


def judged(asked: Sequence[tuple[Pair, BootComparison]]) -> tuple[Verdict, ...]:
    """The verdicts of one family."""
    verdicts = judge_family([contrasted for _, contrasted in asked])
    return tuple(
        v.model_copy(update={"trial": pair.trial, "environment": pair.environment})
        for v, (pair, _) in zip(verdicts, asked, strict=True)
    )


def contrasts(
    base: Side, candidate: Side, metrics: Sequence[str], *, across: bool = False, asked: Asked = _WELCH
) -> list[tuple[Pair, BootComparison]]:
    """What the boots say to every pair and metric, before a level of significance is chosen.

    Raises:
        InputError: nothing to compare, or no environment is on both sides.

    """
    base, candidate = _in_same_environment(base, candidate, across=across)
    shared = [
        (pair, metric)
        for pair in match(base, candidate)
        for metric in metrics
        if _values(pair.base, metric) and _values(pair.candidate, metric)
    ]
    if not shared:
        raise InputError(f"{base.name} and {candidate.name} share none of the metrics {', '.join(metrics)}")
    return [(pair, _contrast(pair, metric, asked)) for pair, metric in shared]


def match(base: Side, candidate: Side) -> list[Pair]:
    """Pair by trial (and environment) where the sides share trials; else by workload where each has one setting for it.

    Raises:
        InputError: neither is possible.

    """
    within = {r.environment.fingerprint for r in base.records} == {r.environment.fingerprint for r in candidate.records}
    left, right = (_by_trial(_measured(side), within=within) for side in (base, candidate))
    shared = [key for key in left if key in right]
    if shared:
        return [
            Pair(left[key][0].trial.workload.name, key[0], *_preferred(left[key], right[key]), key[1] or None)
            for key in shared
        ]
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


def _contrast(pair: Pair, metric: str, asked: Asked) -> BootComparison:
    question = ComparisonSpec(
        metric,
        pair.workload,
        METRICS[metric].direction,
        _took_turns(pair),
        EQUIVALENCE,
        one_spread=asked.one_spread,
        pilot=asked.pilot,
    )
    return compare_boots(question, _values(pair.base, metric), _values(pair.candidate, metric))


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


def _by_trial(records: Sequence[Record], *, within: bool) -> dict[tuple[str, str], tuple[Record, ...]]:
    """(trial, environment) → its records; with one name for all environments where they are compared across."""
    found: dict[tuple[str, str], list[Record]] = {}
    for record in records:
        found.setdefault((record.id, record.environment.fingerprint if within else ""), []).append(record)
    return {key: tuple(of_key) for key, of_key in found.items()}


def _preferred(
    base: tuple[Record, ...], candidate: tuple[Record, ...]
) -> tuple[tuple[Record, ...], tuple[Record, ...]]:
    """Confirmation records alone where both sides have them: a search picks its winner by the luck it had."""
    confirmed = [tuple(r for r in records if r.phase == "confirm") for records in (base, candidate)]
    return (confirmed[0], confirmed[1]) if all(confirmed) else (base, candidate)


def environment_differences(left: Environment, right: Environment) -> tuple[str, ...]:
    """`runtime.version 0.5.16, then 0.5.23` for each fact that decides whether two environments are the same."""
    facts = [_flat(one.model_dump(include={"hardware", "runtime"}, exclude_none=True)) for one in (left, right)]
    names = sorted(facts[0].keys() | facts[1].keys())
    values = [(name, *(str(one.get(name, "none"))[:60] for one in facts)) for name in names]
    return tuple(
        f"{name} {old}, then {new}" for name, old, new in values if old != new and not name.endswith(("uuid", "kind"))
    )


def _flat(value: object, name: str = "") -> dict[str, object]:
    """Nested names joined by dots."""
    if isinstance(value, Mapping):
        inner = value.items()
    elif isinstance(value, list | tuple):
        inner = dict(enumerate(value)).items()
    else:
        return {name: value}
    return {k: v for part, of_part in inner for k, v in _flat(of_part, f"{name}.{part}".lstrip(".")).items()}


def _in_same_environment(base: Side, candidate: Side, *, across: bool) -> tuple[Side, Side]:
    """Both sides, each without records of environments that the other lacks."""
    prints = [{record.environment.fingerprint for record in side.records} for side in (base, candidate)]
    shared = prints[0] & prints[1]
    if across or prints[0] == prints[1]:
        return base, candidate
    if shared:
        sides = [tuple(r for r in side.records if r.environment.fingerprint in shared) for side in (base, candidate)]
        return Side(base.name, sides[0]), Side(candidate.name, sides[1])
    latest = [max(side.records, key=lambda record: record.started_at).environment for side in (base, candidate)]
    differences = environment_differences(*latest)
    shown = "; ".join(differences[:5]) + (f"; and {len(differences) - 5} more" if len(differences) > 5 else "")
    raise InputError(
        f"{base.name} and {candidate.name} were measured in different environments ({shown}): "
        "--across-environments compares them all the same"
    )
