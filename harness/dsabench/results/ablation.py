"""Which changes a winner needs: its boots beside those of itself without each change, and what may go."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from dsabench.config.specs import StudyConfig
from dsabench.model.record import Failed, Record
from dsabench.model.runtime import RuntimeSpec
from dsabench.model.space import canonical, completed, is_forbidden
from dsabench.model.study import Assignment, Objective
from dsabench.model.study_result import Ablation, ChangeWorth
from dsabench.model.verdict import Verdict
from dsabench.results.scores import EQUIVALENCE, compare_turns, score_setting
from dsabench.results.study_records import StudyRecords

Ranked = TypeVar("Ranked")
RecordsOf = Callable[[RuntimeSpec], Mapping[str, Sequence[Record]]]
"""Setting → workload → its records of the ablation, those that failed too."""


@dataclass(frozen=True, slots=True)
class Change:
    """One change of a setting against the default, and the setting without it."""

    axis: str
    label: str
    without: RuntimeSpec


_Sides = tuple[Mapping[str, Sequence[Record]], Mapping[str, Sequence[Record]]]
"""A reduced setting and the winner."""


def changes_of(config: StudyConfig, winner: RuntimeSpec) -> tuple[Change, ...]:
    """Each change of a setting that can be undone by itself, in the order of the axes.

    Knobs that hold only beside it go with it: without speculative decoding there is no number of its steps. A change whose undoing
    the space forbids is missing.
    """
    found: dict[str, Change] = {}
    for axis, value in _changed(config, winner).items():
        without = _without(config, winner, (axis,))
        if without is not None and without.id not in found:
            found[without.id] = Change(axis, f"{axis}={value}", without)
    return tuple(found.values())


def _changed(config: StudyConfig, winner: RuntimeSpec) -> Assignment:
    base = config.runtime.base
    axes = {axis.name: axis for axis in config.space.axes}
    chosen = canonical(config.space, base, winner.knobs)
    return {name: value for name, value in chosen.items() if value != base.get(name, axes[name].values[0])}


def number_of_changes(config: StudyConfig, setting: RuntimeSpec) -> int:
    """How many axes have another value than in the default."""
    return len(_changed(config, setting))


def tied_with_first(ranked: Sequence[Ranked], value: Callable[[Ranked], float | None]) -> list[Ranked]:
    """The first of the settings, ranked best first, and those whose value is within 1 % of its own."""
    best = value(ranked[0]) if ranked else None
    return [one for one in ranked if best and abs((value(one) or math.inf) / best - 1.0) <= EQUIVALENCE]


def _without(config: StudyConfig, winner: RuntimeSpec, undone: Iterable[str]) -> RuntimeSpec | None:
    """The setting with some changes undone; None where the space forbids that, or nothing is left of it."""
    space, base = config.space, config.runtime.base
    gone = set(undone)
    kept = {name: value for name, value in canonical(space, base, winner.knobs).items() if name not in gone}
    assignment = completed(space, base, kept)
    spec = config.spec(assignment)
    if is_forbidden(space, {**base, **assignment}) or spec in (winner, config.default):
        return None
    return spec


def has_gain(objective: Objective, verdicts: Iterable[Verdict]) -> bool:
    """Whether the objective is better under a workload and worse under none: what is worth to be taken apart."""
    words = {one.verdict for one in verdicts if one.metric == objective.metric}
    return "better" in words and "worse" not in words


def ablation_of(records: StudyRecords, winner: RuntimeSpec, round_: int) -> Ablation:
    """What the records of a round say about each change of the winner."""
    return judge_ablation(records.config, winner, lambda spec: records.of_setting(spec, "ablate", round_))


def judge_ablation(config: StudyConfig, winner: RuntimeSpec, records_of: RecordsOf) -> Ablation:
    """Judge each change by the turns of the winner with the winner without it, then all changes that may go together.

    A change is *kept* if the objective is better with it under a workload, if it cannot run or breaks a limit without it, or if the
    boots cannot tell; it is *dropped* if what it gives is at most 1 % under every workload. Settings within that margin are a tie,
    and a tie goes to the setting nearer to the default. Verdicts of all changes are corrected together.
    """
    boots = config.budget.ablate_boots
    found, first, second = changes_of(config, winner), range(boots), range(boots, 2 * boots)
    verdicts = _verdicts(config, [one.without for one in found], winner, records_of, first)
    worths = tuple(
        _worth(config, one, of_change, (records_of(one.without), records_of(winner)), first)
        for one, of_change in zip(found, verdicts, strict=True)
    )
    dropped = [(axis.axis, worth) for axis, worth in zip(found, worths, strict=True) if worth.decision == "dropped"]
    if not dropped or any(worth.decision == "open" for worth in worths):
        return Ablation(winner, worths)
    least = min((worth for _, worth in dropped), key=lambda worth: _most(config, worth.verdicts)).without
    together = _without(config, winner, [axis for axis, _ in dropped])
    if together is None or any(together == worth.without for worth in worths):
        return Ablation(winner, worths, least if together is None else together)
    (joint,) = _verdicts(config, [together], winner, records_of, second)
    sides = records_of(together), records_of(winner)
    if _is_open(config, sides, second):
        return Ablation(winner, worths, together=together)
    stays = _why_kept(config, joint, sides[0], second)
    return Ablation(winner, worths, least if stays else together, together, joint, stays)


def _verdicts(
    config: StudyConfig, bases: Sequence[RuntimeSpec], winner: RuntimeSpec, records_of: RecordsOf, turns: range
) -> list[tuple[Verdict, ...]]:
    """What the winner gives over each base in the objective; empty where a base was not booted beside it."""
    sides = [_in(records_of(base), turns) for base in bases]
    return compare_turns(config, sides, _in(records_of(winner), turns))


def _in(records: Mapping[str, Sequence[Record]], turns: range) -> dict[str, tuple[Record, ...]]:
    return {name: tuple(one for one in of_load if one.turn in turns) for name, of_load in records.items()}


def _worth(
    config: StudyConfig,
    change: Change,
    verdicts: tuple[Verdict, ...],
    sides: _Sides,
    turns: range,
) -> ChangeWorth:
    if _is_open(config, sides, turns):
        return ChangeWorth(change.label, change.without, verdicts, "open", "not all boots are measured")
    reason = _why_kept(config, verdicts, sides[0], turns)
    if reason:
        return ChangeWorth(change.label, change.without, verdicts, "kept", reason)
    if harmed := [one.workload for one in verdicts if one.verdict == "worse"]:
        said = f"worse with ({', '.join(harmed)})"
    elif all(one.verdict == "no difference" for one in verdicts):
        said = "no difference"
    else:
        said = f"at most {100 * EQUIVALENCE:g} % in the mean of these boots"
    return ChangeWorth(change.label, change.without, verdicts, "dropped", said)


def _is_open(config: StudyConfig, sides: _Sides, turns: range) -> bool:
    """Whether a side lacks boots. A reduced setting that failed is not booted again."""
    without, winner = (_in(side, turns) for side in sides)
    if any(isinstance(one.outcome, Failed) for records in without.values() for one in records):
        return False
    return any(len(side.get(load.name, ())) < len(turns) for side in (without, winner) for load in config.workloads)


def _why_kept(
    config: StudyConfig, verdicts: Sequence[Verdict], without: Mapping[str, Sequence[Record]], turns: range
) -> str:
    """Why changes stay; empty where they may go."""
    for of_load in _in(without, turns).values():
        for record in of_load:
            score = score_setting(config.objective, {record.trial.workload.name: [record]})
            if not score.is_feasible:
                return f"without: {score.why_not}"
    if better := [one.workload for one in verdicts if one.verdict == "better"]:
        return f"better with ({', '.join(better)})"
    for one in verdicts:
        no_interval = one.verdict == "inconclusive" and one.ci_low is None
        if no_interval or _gain(config, one) > EQUIVALENCE:
            return f"undecided ({one.workload}): {one.reason}"
    return ""


def _most(config: StudyConfig, verdicts: Iterable[Verdict]) -> float:
    return max(_gain(config, one) for one in verdicts)


def _gain(config: StudyConfig, verdict: Verdict) -> float:
    """What the winner has over the other side, as a share; positive is better."""
    return config.objective.sign * (verdict.effect or 0.0)
