"""Launch settings of a rank: how many tokens a step, how much memory, how many requests at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from dsabench.config.specs import StudyConfig
from dsabench.emit.served import served_lines
from dsabench.errors import InputError
from dsabench.model.numerics import other_precision
from dsabench.model.runtime import MemoryForecast
from dsabench.model.space import canonical, is_legal
from dsabench.model.study_result import StudyResult
from dsabench.model.tuned_table import LaunchRule, TunedTable
from dsabench.model.value import KnobValue
from dsabench.runtimes.kinds import make_runtime
from dsabench.tuners.of_sweep import (
    TunePlan,
    gates_of,
    in_words,
    objective_verdicts,
    table_of_sweep,
    why_not_better,
    why_unfinished,
)
from dsabench.tuners.target import target_of

CHUNK, MEMORY = "chunked_prefill_size", "mem_fraction_static"
_TRIED_FIRST = 2
"""Chunks, the largest first, that are measured before the strategy is asked."""


def plan_launch(config: StudyConfig) -> TunePlan:
    """Begin with the largest chunks that fit beside the largest KV pool: a step's fixed costs are shared by its tokens, and requests wait
    for a pool that is full. Where the runtime's memory is not known, the strategy begins.

    Raises:
        InputError: no axis of chunks, or a runtime whose launch has no strategy.

    """
    if CHUNK not in {axis.name for axis in config.space.axes}:
        raise InputError(f"{config.name}: tune launch needs the axis {CHUNK}")
    if target_of(config).strategy is None:
        raise InputError(f"{config.name}: tune launch takes one server or a slice, without nodes, roles, PP and CP")
    fitting = dict(_fitting(config))
    lines = tuple(
        f"chunk {chunk:,}: {'no memory fraction of the axis fits' if found is None else _in_words(*found)}"
        for chunk, found in sorted(fitting.items())
    )
    promising = [(chunk, found) for chunk, found in sorted(fitting.items(), reverse=True) if found is not None]
    enqueued = tuple(found[0] for _, found in promising[:_TRIED_FIRST])
    space = config.space.model_copy(update={"enqueued": enqueued})
    return TunePlan(config.model_copy(update={"space": space}), lines)


Fitting = tuple[dict[str, KnobValue], MemoryForecast]
"""A setting, and what it takes."""


def _fitting(config: StudyConfig) -> Iterator[tuple[int, Fitting | None]]:
    """For each chunk of the axis, with all else as in base: the memory fraction with the largest pool that surely fits."""
    base = config.default.knobs
    axes = {axis.name: axis.values for axis in config.space.axes}
    fractions = [{MEMORY: value} for value in axes.get(MEMORY, ())] or [{}]
    asked = [
        canonical(config.space, base, {**base, CHUNK: chunk, **fraction})
        for chunk in axes[CHUNK]
        for fraction in fractions
    ]
    legal = [one for one in asked if is_legal(config.space, base, one)]
    checks = make_runtime(config.runtime).check([config.spec(one) for one in legal], config.runtime.version)
    known = [(dict(one), check.memory) for one, check in zip(legal, checks, strict=True) if check.memory is not None]
    for chunk in axes[CHUNK]:
        of_chunk = [(one, memory) for one, memory in known if one[CHUNK] == chunk]
        if isinstance(chunk, int) and of_chunk:
            fits = [found for found in of_chunk if found[1].verdict == "fits"]
            yield chunk, max(fits, key=lambda found: found[1].kv_tokens, default=None)


def _in_words(setting: Mapping[str, KnobValue], told: MemoryForecast) -> str:
    fraction = f"up to {MEMORY} {setting[MEMORY]}, " if MEMORY in setting else ""
    return (
        f"fits {fraction}with {told.kv_tokens:,} tokens in the KV pool and {told.left_gib:.1f} GiB left in a full step"
    )


def table_of(config: StudyConfig, result: StudyResult, command: str) -> tuple[TunedTable | None, str]:
    """The settings of the winner as a table, and one line on where it stands."""
    if (why := why_unfinished(config, result)) is not None:
        return None, f"unfinished: {why}"
    if (why := why_not_better(config, result)) is not None:
        return None, f"not better than the base: {why}"
    assert result.best is not None, "it is better"
    default, best = config.default, result.best.spec
    gates = gates_of(config, result)
    if (apart := other_precision(default, best)) and not (gates and all(gate.passed for gate in gates)):
        return None, f"accuracy unproven: {', '.join(apart)} may change answers, and no eval on real weights was passed"
    strategy = target_of(config).strategy
    assert strategy is not None, "refused before the study"
    changed = {name: value for name, value in best.knobs.items() if default.knobs.get(name) != value}
    rule = LaunchRule(
        strategy=strategy,
        settings=changed,
        instead_of={name: default.knobs[name] for name in changed if name in default.knobs},
    )
    served = [sentence.removesuffix(".") for sentence in served_lines(result.records)]
    conditions = [*served, *_limits_of(config), in_words(objective_verdicts(config, result))]
    table = table_of_sweep(rule, config, result, conditions, command)
    return table, f"better with {best.changes(default)}"


def _limits_of(config: StudyConfig) -> Iterator[str]:
    """What the loads were held to."""
    for load in config.workloads:
        slo = load.slo
        if slo is not None and load.capacity is not None:
            limits = " and ".join(
                f"{name.removesuffix('_ms').upper()} ≤ {limit:g} ms" for name, limit in slo.limits_ms.items()
            )
            yield f"{load.name}: the highest load under which {load.capacity.attainment:.0%} of the requests have {limits}"
