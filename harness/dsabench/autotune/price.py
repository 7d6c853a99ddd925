"""What an autotune will cost before anything boots, stage by stage, and what its rules would refuse."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from dsabench.autotune.job import Job, Outcome, sweep_of
from dsabench.autotune.proof import DECIDES, boots_recorded, plan_without
from dsabench.autotune.stages import TUNES, StageName
from dsabench.autotune.tunes import plan_tune
from dsabench.config.runtime_kinds import runtime_kinds
from dsabench.config.specs import KernelTimes, KernelTune, Tune
from dsabench.errors import InputError
from dsabench.reporting.numbers import show_count, show_dollars, show_duration
from dsabench.study.forecast import gate_lines
from dsabench.study.plan import AblationPrice, DryRun

_KERNEL_TIME_S = 1.0
"""Of one shape and kernel, loading included: half a second on an H200, a second on two cores."""
_KERNELS = 2


@dataclass(frozen=True, slots=True)
class StagePrice:
    """One stage. Boots and seconds are those that the records lack."""

    stage: StageName
    boots: int = 0
    seconds: float = 0.0
    gpu_hours: float | None = None
    """None if no GPU is known."""
    dollars: float | None = None
    """None without `price_per_gpu_hour`."""
    measured_pace: bool = False
    """Whether the pace is that of records; else it is assumed."""
    notes: tuple[str, ...] = ()
    """What the gate asks, what the rules refuse, and the tuner's arithmetic."""
    at_most: AblationPrice | None = None
    """What is added to find which changes a winner needs."""
    trouble: str | None = None
    """Why the stage cannot run as the config is now."""


def plan_stages(job: Job, wanted: tuple[StageName, ...]) -> tuple[StagePrice, ...]:
    """Price the stages that measure. The tunes are priced at the config's own base: the winner is not known yet.

    Raises:
        InputError: the sweep cannot run as the config is now.

    """
    observer = job.observer.study(job.config.objective.metric)
    prices: list[StagePrice] = []
    sweep = job.study(sweep_of(job.config), "sweep").plan(observer)
    if "sweep" in wanted:
        prices.append(_price("sweep", sweep))
    proved: list[str] = []
    for stage, kind in TUNES.items():
        tune = job.config.autotune.of(kind)
        if tune is None or stage not in wanted:
            continue
        if kind in DECIDES:
            proved.append(kind)
        prices.append(_price_of_tune(job, stage, tune))
    if "proof" in wanted and proved:
        prices.append(_price_of_proof(job, proved))
    price = job.config.price_per_gpu_hour
    if price is None:
        return tuple(prices)
    return tuple(one if one.gpu_hours is None else replace(one, dollars=price * one.gpu_hours) for one in prices)


def _price_of_tune(job: Job, stage: StageName, tune: Tune) -> StagePrice:
    try:
        plan = plan_tune(job, tune, None)
        if isinstance(tune, KernelTune):
            return _price_of_kernels(job, stage, tune.kernels)
        found = job.study(plan.config, stage).plan()
    except InputError as error:
        return StagePrice(stage, trouble=str(error))
    return _price(stage, found, plan.arithmetic)


def _price_of_kernels(job: Job, stage: StageName, kernels: KernelTimes) -> StagePrice:
    """On one GPU. Patterns are shapes of which only the worker knows how many there are."""
    is_counted = bool(kernels.shapes) and not any(set(shape) & set("*?[") for shape in kernels.shapes)
    times = _KERNELS * len(kernels.shapes) if is_counted else None
    seconds = min(
        (bound for bound in (None if times is None else times * _KERNEL_TIME_S, kernels.time_s) if bound is not None),
        default=0.0,
    )
    upto = "" if kernels.time_s is None else f", at most {show_duration(kernels.time_s)} a run"
    note = f"{'kernel times' if times is None else show_count(times, 'kernel time')} on one GPU, without a server{upto}"
    has_gpus = runtime_kinds()[job.config.runtime.kind].needs_gpus
    return StagePrice(stage, seconds=seconds, gpu_hours=seconds / 3600 if has_gpus else None, notes=(note,))


def _price_of_proof(job: Job, kinds: Sequence[str]) -> StagePrice:
    """Both sides of each table, at the pace of the servers without it."""
    each, boots, seconds, hours, is_measured = job.config.autotune.proof, 0, 0.0, 0.0, True
    for kind in kinds:
        try:
            found = plan_without(job, kind)
        except InputError as error:
            return StagePrice("proof", trouble=str(error))
        left, cost = max(0, 2 * each - boots_recorded(job, kind)), found.plan.cost
        took = cost.each(left, left * len(found.plan.config.workloads))
        boots, seconds, is_measured = boots + left, seconds + took, is_measured and cost.measured
        hours += 0.0 if found.gpu_hours is None else took * found.gpu_hours.gpus_each / 3600
    note = f"{each} boots with and {each} without each table that is found: {', '.join(kinds)}"
    return StagePrice("proof", boots, seconds, hours or None, measured_pace=is_measured, notes=(note,))


def _price(stage: StageName, found: DryRun, arithmetic: Iterable[str] = ()) -> StagePrice:
    hours = None if found.gpu_hours is None else found.gpu_hours.hours
    config, cost = found.plan.config, found.plan.cost
    notes = [*arithmetic, *gate_lines(config, cost, found.plan.to_score), *_refusals(found)]
    if found.ablation is not None:
        notes.append(found.ablation.line())
    return StagePrice(
        stage,
        found.left.boots,
        found.left.seconds,
        hours,
        measured_pace=cost.measured,
        notes=tuple(notes),
        at_most=found.ablation,
    )


def _refusals(found: DryRun) -> list[str]:
    space = found.plan.space
    of = f"{space.asked:,} {'' if space.is_whole else 'sampled '}settings of the space"
    if not space.refused:
        return [f"refused by the rules: none of the {of}"] if space.asked else []
    head = f"refused by the rules, without a boot: {space.refused:,} of the {of}"
    return [head, *(f"{rule}: {space.lines[rule]}" for rule in space.by_rule)]


def plan_in_words(prices: Sequence[StagePrice]) -> Outcome:
    """All stages together in one line."""
    troubles = [f"{one.stage}: {one.trouble}" for one in prices if one.trouble is not None]
    if troubles:
        return Outcome("failed", "; ".join(troubles))
    boots, seconds = sum(one.boots for one in prices), sum(one.seconds for one in prices)
    hours = [one.gpu_hours for one in prices if one.gpu_hours is not None]
    dollars = [one.dollars for one in prices if one.dollars is not None]
    gpus = f", {sum(hours):.1f} GPU-hours" if hours else ""
    price = f", {show_dollars(sum(dollars))}" if dollars else ""
    return Outcome("done", f"{boots} boots, about {seconds / 60:.0f} min{gpus}{price}")
