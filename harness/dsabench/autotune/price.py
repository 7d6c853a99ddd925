"""What an autotune will cost before anything boots, stage by stage, and what its rules would refuse."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from dsabench.autotune.job import Job, Outcome, sweep_of
from dsabench.autotune.proof import DECIDES, boots_recorded
from dsabench.autotune.stages import TUNES, StageName
from dsabench.autotune.tunes import plan_tune
from dsabench.config.specs import KernelTune, Tune
from dsabench.errors import InputError
from dsabench.study.plan import DryRun


@dataclass(frozen=True, slots=True)
class StagePrice:
    """One stage. Boots and seconds are those that the records lack."""

    stage: StageName
    boots: int = 0
    seconds: float = 0.0
    gpu_hours: float | None = None
    """None if no GPU is known."""
    measured_pace: bool = False
    """Whether the pace is that of records; else it is assumed."""
    notes: tuple[str, ...] = ()
    """What the rules refuse, and the tuner's arithmetic."""
    trouble: str | None = None
    """Why the stage cannot run as the config is now."""


def plan_stages(job: Job, wanted: tuple[StageName, ...]) -> tuple[StagePrice, ...]:
    """Price the stages that boot servers. The tunes are priced at the config's own base: the winner is not known yet.

    Raises:
        InputError: the sweep cannot run as the config is now.

    """
    observer = job.observer.study(job.config.objective.metric)
    prices: list[StagePrice] = []
    sweep = job.study(sweep_of(job.config), "sweep").plan(observer)
    if "sweep" in wanted:
        prices.append(_price("sweep", sweep, _refusals(sweep)))
    proved: list[str] = []
    for stage, kind in TUNES.items():
        tune = job.config.autotune.of(kind)
        if tune is None or stage not in wanted:
            continue
        if kind in DECIDES:
            proved.append(kind)
        prices.append(_price_of_tune(job, stage, tune))
    if "proof" in wanted and proved:
        each = job.config.autotune.proof
        boots = sum(max(0, 2 * each - boots_recorded(job, kind)) for kind in proved)
        gpus = sweep.gpu_hours.gpus_each if sweep.gpu_hours is not None else None
        seconds = sweep.plan.cost.of(boots, boots)
        hours = None if gpus is None else gpus * seconds / 3600
        note = f"with and without each table, {each} boots a side"
        prices.append(StagePrice("proof", boots, seconds, hours, sweep.plan.cost.measured, (note,)))
    return tuple(prices)


def _price_of_tune(job: Job, stage: StageName, tune: Tune) -> StagePrice:
    try:
        plan = plan_tune(job, tune, None)
        if isinstance(tune, KernelTune):
            kernels = tune.kernels
            upto = "" if kernels.time_s is None else f", at most {kernels.time_s:.0f} s a run"
            return StagePrice(stage, seconds=kernels.time_s or 0.0, notes=(f"kernel times without a server{upto}",))
        found = job.study(plan.config, stage).plan(job.observer.study(plan.config.objective.metric))
    except InputError as error:
        return StagePrice(stage, trouble=str(error))
    return _price(stage, found, (*plan.arithmetic, *_refusals(found)))


def _price(stage: StageName, found: DryRun, notes: Iterable[str]) -> StagePrice:
    hours = None if found.gpu_hours is None else found.gpu_hours.hours
    return StagePrice(stage, found.left.boots, found.left.seconds, hours, found.plan.cost.measured, tuple(notes))


def _refusals(found: DryRun) -> list[str]:
    space = found.plan.space
    if not space.refused:
        return []
    head = f"{space.refused} of {space.asked} settings are refused without a boot"
    return [head, *(f"{rule}: {space.lines[rule]}" for rule in space.by_rule)]


def plan_in_words(prices: Sequence[StagePrice]) -> Outcome:
    """All stages together in one line."""
    troubles = [f"{one.stage}: {one.trouble}" for one in prices if one.trouble is not None]
    if troubles:
        return Outcome("failed", "; ".join(troubles))
    boots, seconds = sum(one.boots for one in prices), sum(one.seconds for one in prices)
    hours = [one.gpu_hours for one in prices if one.gpu_hours is not None]
    gpus = f", {sum(hours):.1f} GPU-hours" if hours else ""
    return Outcome("done", f"{boots} boots, about {seconds / 60:.0f} min{gpus}")
