"""Two sets of records held against each other, with the boot as the unit of replication."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from dsabench.config.runtime_kinds import runtime_kinds
from dsabench.errors import InputError
from dsabench.model.environment import Environment
from dsabench.model.metrics import METRICS
from dsabench.model.record import Measured, Record
from dsabench.model.verdict import Verdict
from dsabench.model.workload import Workload
from dsabench.results.machines import machines_of
from dsabench.results.scores import EQUIVALENCE, PairedBoots, boot_values, compare_pairs, pair_boots
from dsabench.stats.compare import BootComparison, ComparisonSpec, judge_family
from dsabench.stats.occasions import NO_VERDICT, ApartOptions, TimedBoot, compare_apart, occasions_of, tells_drift

DEFAULT_METRICS = ("output_throughput_tok_s", "ttft_ms.p50", "ttft_ms.p99", "tpot_ms.p50", "itl_ms.p50", "itl_ms.p99")


@dataclass(frozen=True, slots=True)
class ComparedSide:
    """One side of a comparison; `name` is how the user called it."""

    name: str
    records: tuple[Record, ...]


@dataclass(frozen=True, slots=True)
class ComparedPair:
    """Records of both sides that measured the same thing."""

    workload: str
    trial: str | None
    base: tuple[Record, ...]
    candidate: tuple[Record, ...]
    environment: str | None = None


def compare_sides(
    base: ComparedSide, candidate: ComparedSide, metrics: Sequence[str], *, across: bool = False
) -> tuple[Verdict, ...]:
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


def judged(asked: Sequence[tuple[ComparedPair, BootComparison]]) -> tuple[Verdict, ...]:
    """The verdicts of one family."""
    verdicts = judge_family([contrasted for _, contrasted in asked])
    return tuple(
        v.model_copy(update={"trial": pair.trial, "environment": pair.environment})
        for v, (pair, _) in zip(verdicts, asked, strict=True)
    )


def contrasts(
    base: ComparedSide,
    candidate: ComparedSide,
    metrics: Sequence[str],
    *,
    across: bool = False,
    pilot: int = 0,
    apart: ApartOptions = NO_VERDICT,
) -> list[tuple[ComparedPair, BootComparison]]:
    """What the boots say to every pair and metric, before a level of significance is chosen.

    For `pilot` see `ComparisonSpec`; `apart` is what is made of boots that did not take turns.

    Raises:
        InputError: nothing to compare, or no environment is on both sides.

    """
    base, candidate = _in_same_environment(base, candidate, across=across)
    shared = [
        (pair, metric)
        for pair in match(base, candidate)
        for metric in metrics
        if boot_values(pair.base, metric) and boot_values(pair.candidate, metric)
    ]
    if not shared:
        raise InputError(f"{base.name} and {candidate.name} share none of the metrics {', '.join(metrics)}")
    return [(pair, _contrast(pair, metric, pilot, apart)) for pair, metric in shared]


def match(base: ComparedSide, candidate: ComparedSide) -> list[ComparedPair]:
    """Pair by trial (and environment) where the sides share trials; else by workload where each has one setting for it.

    Raises:
        InputError: neither is possible.

    """
    within = {r.environment.fingerprint for r in base.records} == {r.environment.fingerprint for r in candidate.records}
    left, right = (_by_trial(_measured(side), within=within) for side in (base, candidate))
    shared = [key for key in left if key in right]
    if shared:
        return _held_out(
            ComparedPair(left[key][0].trial.workload.name, key[0], *_preferred(left[key], right[key]), key[1] or None)
            for key in shared
        )
    pairs = []
    for workload in dict.fromkeys(record.trial.workload for record in base.records):
        sides = [[r for r in _measured(side) if r.trial.workload == workload] for side in (base, candidate)]
        settings = [len({record.trial.runtime.id for record in records}) for records in sides]
        if settings == [1, 1]:
            pairs.append(ComparedPair(workload.name, None, *_preferred(*(tuple(records) for records in sides))))
    if not pairs:
        raise InputError(
            f"nothing to compare: {base.name} and {candidate.name} share no trial, and no workload has one setting "
            "on each side: name one setting a side as RESULTS#TRIAL"
        )
    return _held_out(pairs)


def _held_out(pairs: Iterable[ComparedPair]) -> list[ComparedPair]:
    """Without what a search measured where the confirmation had prompts of its own."""
    found = [(pair, pair.base[0].trial.workload) for pair in pairs]
    confirmed = {load.name for _, load in found if isinstance(load, Workload) and load.part == "confirm"}
    return [
        pair
        for pair, load in found
        if not (isinstance(load, Workload) and load.part == "search" and load.name in confirmed)
    ]


def _contrast(pair: ComparedPair, metric: str, pilot: int, apart: ApartOptions) -> BootComparison:
    paired = pair_boots(pair.base, pair.candidate)
    if _alternate(pair, paired):
        return compare_pairs(paired.without_pauses(), pair.workload, metric, pilot=pilot)
    question = ComparisonSpec(metric, pair.workload, METRICS[metric].direction, paired=False, equivalence=EQUIVALENCE)
    if machines_of(pair.base).isdisjoint(machines_of(pair.candidate)):  # no history of one machine tells how two differ
        found = compare_apart(question, _timed(pair.base, metric), _timed(pair.candidate, metric), NO_VERDICT)
        return replace(found, note="the sides were measured on different machines")
    return compare_apart(question, _timed(pair.base, metric), _timed(pair.candidate, metric), apart)


def has_drift_history(side: ComparedSide, metric: str, at_s: float) -> bool:
    """Whether its boots of some setting tell how far that drifts until `at_s` (seconds since 1970)."""
    trials = _by_trial(_measured(side), within=True).values()
    return any(tells_drift(occasions_of(_timed(of_trial, metric)), at_s) for of_trial in trials)


def _timed(records: Iterable[Record], metric: str) -> list[TimedBoot]:
    """One a boot: the mean of its values, and the time from its first to its last."""
    boots: dict[str, list[Record]] = {}
    for record in records:
        if boot_values([record], metric):
            boots.setdefault(record.boot, []).append(record)
    found = []
    for boot, of_boot in boots.items():
        values = boot_values(of_boot, metric)
        beyond = next((one.beyond for one in values if one.beyond), 0)
        starts_s = [record.started_at.timestamp() for record in of_boot]
        ends_s = [start_s + record.duration_s for start_s, record in zip(starts_s, of_boot, strict=True)]
        mean = sum(one.value for one in values) / len(values)
        found.append(TimedBoot(boot, mean, min(starts_s), max(ends_s), beyond))
    return found


def _alternate(pair: ComparedPair, paired: PairedBoots) -> bool:
    """Whether all boots took turns, but for a last one whose partner is still to come: only then is pairing meaningful."""
    boots = {record.boot for side in (pair.base, pair.candidate) for record in side}
    return len(paired.pairs) > 1 and paired.alternate and len(boots) - 2 * len(paired.pairs) <= 1


def _measured(side: ComparedSide) -> list[Record]:
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


def differences_in_words(left: Environment, right: Environment) -> str:
    """`hardware.cpu_cores 16, then 2; runtime.version 0.5.16, then 0.5.23`: the facts that decide whether two environments are the same."""
    found = _environment_differences(left, right)
    return "; ".join(found[:5]) + (f"; and {len(found) - 5} more" if len(found) > 5 else "")


def _environment_differences(left: Environment, right: Environment) -> tuple[str, ...]:
    facts = [_flat(one.model_dump(include={"hardware", "runtime"}, exclude_none=True)) for one in (left, right)]
    names = sorted(facts[0].keys() | facts[1].keys())
    values = [(name, *(str(one.get(name, "none"))[:60] for one in facts)) for name in names]
    codes = {runtime_kinds()[one.runtime.kind].code for one in (left, right)}
    code = f"{codes.pop() if len(codes) == 1 else 'code of the runtimes'} changed"
    return tuple(
        code if name.endswith("wheel_hash") else f"{name} {old}, then {new}"  # two hashes tell a person nothing
        for name, old, new in values
        if old != new and not name.endswith(("uuid", "kind"))
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


def _in_same_environment(
    base: ComparedSide, candidate: ComparedSide, *, across: bool
) -> tuple[ComparedSide, ComparedSide]:
    """Both sides, each without records of environments that the other lacks."""
    prints = [{record.environment.fingerprint for record in side.records} for side in (base, candidate)]
    shared = prints[0] & prints[1]
    if across or prints[0] == prints[1]:
        return base, candidate
    if shared:
        sides = [tuple(r for r in side.records if r.environment.fingerprint in shared) for side in (base, candidate)]
        return ComparedSide(base.name, sides[0]), ComparedSide(candidate.name, sides[1])
    latest = [max(side.records, key=lambda record: record.started_at).environment for side in (base, candidate)]
    raise InputError(
        f"{base.name} and {candidate.name} were measured in different environments ({differences_in_words(*latest)}): "
        "--across-environments compares them all the same"
    )
