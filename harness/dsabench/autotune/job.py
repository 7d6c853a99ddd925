"""What all stages of an autotune share, and what a stage returns."""

from __future__ import annotations

import shlex
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path

from dsabench.autotune.stages import StageName, StageRecord, StageState
from dsabench.config.specs import StudyConfig, Tune
from dsabench.emit.best_setting import against_default
from dsabench.emit.fit import why_not_emitted
from dsabench.errors import InputError
from dsabench.kernelbench.conductor import WorkerLine
from dsabench.kernelbench.request import KernelBenchRequest
from dsabench.model.numerics import changed_numerics
from dsabench.model.runtime import RuntimeSpec
from dsabench.model.study_result import StudyResult
from dsabench.model.verdict import Verdict
from dsabench.results.ablation import has_gain
from dsabench.study.session import SILENT, StudyObserver
from dsabench.study.study import Study
from dsabench.tuners.of_sweep import gates_of, objective_verdicts
from dsabench.tuners.target import target_of

Lines = AsyncGenerator[WorkerLine, None]


class AutotuneObserver:
    """Receive the progress of an autotune. This base class shows nothing."""

    def stage_started(self, name: StageName) -> None:
        """A stage begins."""

    def stage_ended(self, record: StageRecord) -> None:
        """A stage has ended."""

    def study(self, metric: str) -> StudyObserver:
        """The observer for the boots of a stage; `metric` is what they are judged by."""
        del metric
        return SILENT

    async def kernels(
        self, request: KernelBenchRequest, python: str | None, lines: Lines, hear: Callable[[WorkerLine], None]
    ) -> None:
        """Pass on what the workers say that measure kernels."""
        del request, python
        async with aclosing(lines):
            async for said in lines:
                hear(said)


@dataclass(frozen=True, slots=True)
class Job:
    """The config, and where and how its stages run."""

    config: StudyConfig
    folder: Path
    """Of the sweep's journal. Everything else lies below `autotune/` in it."""
    command: str
    """Repeats the run."""
    name: str
    """The config as it was named: what tables say of how to measure them again."""
    observer: AutotuneObserver
    lanes: int = 1
    tree: Path | None = None
    """A checkout of the runtime for the pull request."""

    @property
    def own(self) -> Path:
        """Folder of the stages."""
        return self.folder / "autotune"

    @property
    def tables(self) -> Path:
        """Folder of the tables that may be installed."""
        return self.own / "tables"

    @property
    def written(self) -> list[Path]:
        """Those tables."""
        return sorted(self.tables.glob("*,*.json"))

    def study(self, config: StudyConfig, stage: StageName) -> Study:
        """The study of a stage."""
        return Study(config, self.folder if stage == "sweep" else self.own / stage, self.lanes)

    def command_of(self, stage: StageName) -> str:
        """Repeats one stage on any machine: without places and lanes."""
        return shlex.join(["dsabench", "autotune", self.name, "--only", stage])


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a stage came to."""

    state: StageState
    says: str
    measured: int = 0
    inputs: str | None = None
    files: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Winner:
    """A setting that is confirmed as better than the default, and may become one."""

    spec: RuntimeSpec
    label: str
    verdicts: tuple[Verdict, ...]
    """Of the objective, one per workload, against the default."""


def accepted(config: StudyConfig, result: StudyResult) -> Winner | None:
    """The best setting of the sweep if it is better somewhere and worse nowhere and may be a default; else the best confirmed one
    that may, because it computes the same as the default.
    """
    if result.best is None or result.unconfirmed:
        return None
    rivals = [one for one in result.rivals if one.spec != config.default]
    exact = [one for one in rivals if not changed_numerics(config.default, one.spec)]
    tried = [
        Winner(one.spec, one.label, against_default(config, result.records, config.default, one.spec)) for one in exact
    ]
    if not result.is_refused:
        best = Winner(result.best.spec, result.best.label, tuple(objective_verdicts(config, result)))
        tried = [best, *tried]
    faster = (one for one in tried if has_gain(config.objective, one.verdicts))
    return next((one for one in faster if why_not_default(config, result, one.spec) is None), None)


def sweep_of(config: StudyConfig) -> StudyConfig:
    """The sweep of an autotune: without a gate it also confirms the best setting that needs none, where the budget allows that."""
    budget = config.budget
    fixed = budget.others_confirmed is not None or budget.stop_when_decided or budget.ablate
    if config.gates or fixed or not budget.confirm_boots:
        return config
    more = config.model_copy(update={"budget": budget.model_copy(update={"confirm_exact": True})})
    return more.with_boots_as_before(config)


def why_not_default(config: StudyConfig, result: StudyResult, spec: RuntimeSpec) -> str | None:
    """Why a setting may not become a default, however fast it is; None if it may."""
    try:
        index_topk = target_of(config).index_topk
    except InputError:
        index_topk = None
    is_best = result.best is not None and spec == result.best.spec
    gates = gates_of(config, result) if is_best else ()
    return why_not_emitted(spec, config.default, gates, index_topk=index_topk, allow_simulated=False)


def tuned_study(config: StudyConfig, tune: Tune, winner: RuntimeSpec | None) -> StudyConfig:
    """The study of a tune on the config's runtime, with the winner's settings where neither the tune nor its axes say something else."""
    study = tune.study
    kept = {*tune.fixed, *(axis.name for axis in study.space.axes)}
    taken = {} if winner is None else {name: value for name, value in winner.knobs.items() if name not in kept}
    runtime = config.runtime.model_copy(update={"base": {**study.runtime.base, **taken}})
    return study.model_copy(update={"runtime": runtime})
