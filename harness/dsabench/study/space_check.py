"""What the runtime's rules say about the settings of a space, and what a run could never prove."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

from dsabench.config.specs import StudyConfig
from dsabench.errors import InputError
from dsabench.model.capacity import CAPACITY_METRICS
from dsabench.model.runtime import (
    Annotate,
    Refuse,
    RuleViolation,
    RuntimeSpec,
    SettingNote,
    annotate_nothing,
    refuse_nothing,
)
from dsabench.model.space import base_assignment, count, legal
from dsabench.model.study import Assignment, Objective, SearchSpace
from dsabench.model.value import KnobValue
from dsabench.model.workload import Workload
from dsabench.stats.percentiles import observations_needed
from dsabench.study.proposers.random import draw, generator

LISTED = 2_000
"""Spaces up to this size are checked completely. Of a larger space this many points are sampled."""
_DRAWS = 10_000
"""Draws for such a sample."""


@dataclass(frozen=True, slots=True)
class NeverRuns:
    """A value of an axis with which the rules refuse every checked point."""

    knob: str
    value: KnobValue
    points: int
    """Number of checked points with this value."""
    rule: str
    """The rule that refuses most of them."""
    line: str
    """The message for the first of them, with the nearest legal setting."""


@dataclass(frozen=True, slots=True)
class SpaceCheck:
    """The answer of the rules for a space."""

    settings: int
    """Settings that a search may boot, including the default. Extrapolated if only a sample was checked; at most a
    million.
    """
    per_boot: float = 1.0
    """Of them, how many share a boot on average, because a running server changes some axes."""
    asked: int = 0
    """Number of checked points."""
    refused: int = 0
    by_rule: Mapping[str, int] = field(default_factory=dict)
    """Rule id → number of points that it refuses, the most frequent rule first."""
    lines: Mapping[str, str] = field(default_factory=dict)
    """Rule id → its message for the first of them."""
    passed: tuple[Assignment, ...] = ()
    """The points that no rule refuses."""
    is_whole: bool = True
    """Whether all points were checked. If not, only the shares are meaningful."""
    never_runs: tuple[NeverRuns, ...] = ()


def check_space(config: StudyConfig, refuse: Refuse) -> SpaceCheck:
    """Count the space and check its points. A runtime without rules refuses nothing."""
    space, base = config.searched_space, config.default.knobs
    default = int(base_assignment(space, base) is None)  # the default boots even if it lies outside the space
    size = count(space, base)
    per_boot = size / max(count(_without_reload_free(config), base), 1)
    if refuse is refuse_nothing:
        return SpaceCheck(size + default, per_boot)
    points, is_whole = sample(config)
    verdicts = [refuse(config.spec(point)) for point in points]
    refusals = [verdict for verdict in verdicts if verdict is not None]
    passed = tuple(point for point, verdict in zip(points, verdicts, strict=True) if verdict is None)
    rules = Counter(refusal.rule for refusal in refusals)
    lines = {refusal.rule: refusal.line for refusal in reversed(refusals)}
    forbidden = rules.total() if is_whole else round(size * rules.total() / max(len(points), 1))
    return SpaceCheck(
        settings=size - forbidden + default,
        per_boot=per_boot,
        asked=len(points),
        refused=rules.total(),
        by_rule=dict(rules.most_common()),
        lines=lines,
        passed=passed,
        is_whole=is_whole,
        never_runs=tuple(_never_runs(config, points, verdicts)),
    )


def _without_reload_free(config: StudyConfig) -> SearchSpace:
    """The space of what needs a boot of its own."""
    space, free = config.searched_space, config.reload_free
    axes = tuple(axis for axis in space.axes if axis.name not in free)
    return space.model_copy(
        update={"axes": axes, "forbid": tuple(rule for rule in space.forbid if not free & rule.keys())}
    )


def _never_runs(
    config: StudyConfig, points: Sequence[Assignment], verdicts: Sequence[RuleViolation | None]
) -> Iterator[NeverRuns]:
    for axis in config.space.axes:
        for value in axis.values:
            found = [refusal for point, refusal in zip(points, verdicts, strict=True) if point.get(axis.name) == value]
            refusals = [refusal for refusal in found if refusal is not None]
            if refusals and len(refusals) == len(found):
                rule, _ = Counter(refusal.rule for refusal in refusals).most_common(1)[0]
                line = next(refusal.line for refusal in refusals if refusal.rule == rule)
                yield NeverRuns(axis.name, value, len(found), rule, line)


@dataclass(frozen=True, slots=True)
class Overruled:
    """Points that would boot with other values than requested. They often run the same as another point."""

    asked: int = 0
    """Number of points that no rule refuses."""
    points: int = 0
    by_rule: Mapping[str, int] = field(default_factory=dict)
    """Rule id → number of points that it overrules, the most frequent rule first."""
    lines: Mapping[str, str] = field(default_factory=dict)
    """Rule id → its message for the first of them."""


def check_overruled(config: StudyConfig, passed: Sequence[Assignment], annotate: Annotate) -> Overruled:
    """Find points that the runtime would overrule. A runtime without rules overrules nothing.

    Rules that also overrule the default are left out, because they say nothing about the search.
    """
    if annotate is annotate_nothing:
        return Overruled()

    def overruling(spec: RuntimeSpec) -> list[SettingNote]:
        return [note for note in annotate(spec) if note.replaced]

    common = {said.rule for said in overruling(config.default)}
    told = ([said for said in overruling(config.spec(point)) if said.rule not in common] for point in passed)
    found = [one for one in told if one]
    rules = Counter(rule for one in found for rule in {said.rule for said in one})
    lines = {said.rule: said.line for one in reversed(found) for said in one}
    return Overruled(len(passed), len(found), dict(rules.most_common()), lines)


def sample(config: StudyConfig) -> tuple[list[Assignment], bool]:
    """The points of the space and whether they are complete. Of a large space, a sample."""
    points = list(islice(legal(config.searched_space, config.runtime.base), LISTED + 1))
    if len(points) <= LISTED:
        return points, True
    return list(islice(_drawn(config), LISTED)), False


def _drawn(config: StudyConfig) -> Iterator[Assignment]:
    rng = generator(config.proposer.seed)
    for _ in range(_DRAWS):
        point = draw(config.searched_space, config.runtime.base, rng)
        if point is not None:
            yield point


def require_legal_default(config: StudyConfig, refuse: Refuse) -> None:
    """Refuse a study whose default cannot run: every comparison needs it.

    Raises:
        InputError: with the rule that refuses it.

    """
    refusal = refuse(config.default)
    if refusal is not None:
        raise InputError(f"runtime.base: {refusal.line}")


_OF_SLO = ("goodput_req_s", "slo_attainment")


def _refuse_without_capacity(key: str, name: str, workloads: Sequence[Workload]) -> None:
    for one in workloads:
        if one.capacity is None:
            raise InputError(f"{key}.metric: {name} needs a capacity in every workload; {one.name} has none")
        if (own := CAPACITY_METRICS[one.load_key]) != name:
            raise InputError(f"{key}.metric: workload {one.name} gives {own}, not {name}")


def refuse_unprovable(objective: Objective, workloads: Sequence[Workload]) -> None:
    """Refuse an objective that the workloads can never prove: a tail percentile of too few requests, or goodput
    without an SLO.

    Percentiles of gaps between tokens (ITL) are not checked, because each request has many of them.

    Raises:
        InputError: with key, metric, workload, and the number of requests that it takes.

    """
    keys = [("objective", objective.metric)]
    keys += [(f"objective.constraints[{index}]", bound.metric) for index, bound in enumerate(objective.constraints)]
    for key, name in keys:
        if name in _OF_SLO and (lacking := [workload.name for workload in workloads if workload.slo is None]):
            raise InputError(f"{key}.metric: {name} needs an slo in every workload; {lacking[0]} has none")
        if name in CAPACITY_METRICS.values():
            _refuse_without_capacity(key, name, workloads)
        family, _, statistic = name.rpartition(".")
        if family.endswith("itl_ms") or not re.fullmatch(r"p\d\d", statistic):
            continue
        least = observations_needed(int(statistic[1:]) / 100)
        for workload in workloads:
            if workload.num_prompts < least:
                raise InputError(
                    f"{key}.metric: {name} takes at least {least} requests; workload {workload.name} has num_prompts: "
                    f"{workload.num_prompts}"
                )
