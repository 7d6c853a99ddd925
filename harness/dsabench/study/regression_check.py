"""Measure and judge a CI regression check: repeated boots of one setting, without a search."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from dsabench.config.specs import StudyConfig
from dsabench.errors import InputError, TrialFault
from dsabench.machine.cpu_use import is_disturbed
from dsabench.machine.environment import collect_environment
from dsabench.model.environment import Environment
from dsabench.model.record import Measured, Record, Trial
from dsabench.reporting.comparison import ComparedSide
from dsabench.reporting.regression import (
    Judgement,
    Rules,
    count_rounds,
    judge,
    neighbours_of,
    undisturbed,
    undisturbed_rounds,
)
from dsabench.results.journal import Journal, claim_folder
from dsabench.results.study_records import StudyRecords
from dsabench.runtimes.kinds import make_runtime
from dsabench.runtimes.protocol import Runtime
from dsabench.stats.occasions import OCCASION_PAUSE_S
from dsabench.study.session import SILENT, PlannedTrial, StudyObserver, TrialSession, open_session
from dsabench.study.trial import run_boot

_TRIES = 2
"""Boots per requested boot at most, if other processes disturb them."""


@dataclass(frozen=True, slots=True)
class OpenRuntime:
    """The runtime of a config and its environment."""

    runtime: Runtime
    environment: Environment


@dataclass(frozen=True, slots=True)
class CheckedSide:
    """One side of the comparison that is measured now."""

    config: StudyConfig
    installed: OpenRuntime
    folder: Path

    def side(self, name: str) -> ComparedSide:
        """Its records in this environment."""
        fingerprint = self.installed.environment.fingerprint
        records = tuple(r for r in Journal(self.folder).read().records if r.environment.fingerprint == fingerprint)
        return ComparedSide(name, records)

    @property
    def boots(self) -> int:
        """Number of boots with a number and without disturbance by other processes."""
        return self._count(alone=True)

    @property
    def disturbed(self) -> int:
        """Number of boots with a number that other processes disturbed."""
        return self._count(alone=False)

    def _count(self, *, alone: bool) -> int:
        measured = [r for r in self.side("").records if isinstance(r.outcome, Measured)]
        busy = {r.boot for r in measured if isinstance(r.outcome, Measured) and is_disturbed(r.outcome.warnings)}
        return len({r.boot for r in measured} - busy) if alone else len(busy)


@dataclass(frozen=True, slots=True)
class CheckSpec:
    """How to check for a regression."""

    rules: Rules
    boots: int
    """Boots per side in the first look; 0 boots nothing."""
    max_boots: int


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The outcome of a check."""

    judgement: Judgement
    faults: tuple[str, ...]
    """One line per failed trial."""


async def check_regression(
    spec: CheckSpec, ours: CheckedSide, against: CheckedSide | ComparedSide, observer: StudyObserver
) -> CheckResult:
    """Boot and compare with a baseline that is recorded, or that boots now in turns.

    If the first look is undecided, it boots as many times as the measured spread requires, and looks once more.

    Raises:
        TrialFault: no boot gave a number.

    """
    theirs = against if isinstance(against, CheckedSide) else None
    fixed = None if isinstance(against, CheckedSide) else against
    if spec.boots:
        await _boot(ours, theirs, spec.boots, observer)
    judgement = _look(ours, theirs, fixed, spec.rules)
    if (
        spec.rules.looks == 2
        and judgement.standing == "undecided"
        and (judgement.boots_wanted or 0) > _had(ours, theirs)
    ):
        pilot = judgement.boots_had
        await _boot(ours, theirs, min(judgement.boots_wanted or 0, spec.max_boots), observer)
        judgement = _look(ours, theirs, fixed, spec.rules, pilot)
    return CheckResult(judgement, tuple(_faults([one for one in (ours, theirs) if one is not None])))


def refuse_copies(ours: CheckedSide, baseline: ComparedSide) -> None:
    """A copy of the baseline's boots compared with themselves would always pass.

    Raises:
        InputError: boots of the baseline are boots of the candidate too, by name or by every number.

    """
    known = {record.boot for record in baseline.records} | {record.numbers for record in baseline.records}
    shared = {one.boot for one in ours.side("").records if one.boot in known or (one.numbers and one.numbers in known)}
    if shared:
        raise InputError(
            f"{ours.folder} and the baseline {baseline.name} share {len(shared)} boots, so nothing can be compared: "
            "name another --results or --baseline"
        )


def as_recorded(config: StudyConfig, baseline: ComparedSide) -> StudyConfig:
    """The config with the setting that a baseline recorded, to be booted now.

    Raises:
        InputError: the baseline has no setting or several for these workloads, or one that this config cannot boot.

    """
    measured = [r.trial for r in baseline.records if r.trial.workload in config.recorded_workloads]
    specs = {trial.runtime.id: trial.runtime for trial in measured}
    if len(specs) != 1:
        raise InputError(
            f"{baseline.name}: {len(specs) or 'no'} settings of the workloads of {config.name} are recorded, and in turns "
            "boots one: name one as RESULTS#TRIAL, or take --base-ref or --against"
        )
    (spec,) = specs.values()
    recorded = {"model": spec.model, "version": spec.version, "base": spec.knobs, "env": spec.env}
    found = config.model_copy(update={"runtime": config.runtime.model_copy(update=recorded)})
    if found.default != spec:
        raise InputError(
            f"{baseline.name}: its setting cannot be booted from {config.name}, whose runtime differs in more than model, "
            "knobs and environment variables: take --base-ref or --against"
        )
    return found


async def measure_baseline(side: CheckedSide, boots: int, observer: StudyObserver) -> None:
    """Measure the boots that the baseline lacks in this occasion; one long past is history, which tells the drift.

    Raises:
        TrialFault: no boot gave a number.

    """
    recent_s = time.time() - OCCASION_PAUSE_S
    had = {
        r.boot for r in side.side("").records if isinstance(r.outcome, Measured) and r.started_at.timestamp() > recent_s
    }
    await measure_boots(side.config, side.installed, side.folder, max(boots - len(had), 0), observer=observer)
    if side.boots + side.disturbed == 0:
        raise TrialFault("exited", f"no boot gave a number: {_faults([side])[0]}", stage="boot")


async def _boot(ours: CheckedSide, theirs: CheckedSide | None, boots: int, observer: StudyObserver) -> None:
    """Boot until enough boots were undisturbed. Two sides take turns (AB BA AB), so that a drift hits both.

    On a machine that is never quiet, stop after twice as many.
    """
    had = ours.boots + ours.disturbed  # an earlier run may have left some
    for turn in range(had, max(_TRIES * boots, had)):
        if _had(ours, theirs) >= boots:
            break
        for side in [ours] if theirs is None else [theirs, ours] if turn % 2 == 0 else [ours, theirs]:
            await measure_boots(side.config, side.installed, side.folder, 1, observer=observer)


def _had(ours: CheckedSide, theirs: CheckedSide | None) -> int:
    """Number of undisturbed boots; with two sides, of undisturbed pairs."""
    return ours.boots if theirs is None else count_rounds(theirs.side(""), ours.side(""))


def _look(
    ours: CheckedSide, theirs: CheckedSide | None, fixed: ComparedSide | None, rules: Rules, pilot: int = 0
) -> Judgement:
    if ours.boots + ours.disturbed == 0:
        faults = _faults([ours])
        said = faults[0] if faults else f"nothing is recorded in {ours.folder}"
        raise TrialFault("exited", f"no boot gave a number: {said}", stage="boot")
    side = ours.side(str(ours.folder))
    base = theirs.side(str(theirs.folder)) if theirs is not None else fixed
    assert base is not None
    sides = undisturbed_rounds(base, side) if theirs is not None else (undisturbed(base), undisturbed(side))
    neighbours = neighbours_of(base, sides[0], side), neighbours_of(side, sides[1], base)
    return replace(judge(*sides, rules, pilot), neighbours=neighbours)


def _faults(sides: Sequence[CheckedSide]) -> list[str]:
    return [
        f"{record.trial.workload.name}: {record.outcome.fault} in {record.outcome.stage}: {record.outcome.message}"
        for side in sides
        for record in side.side("").records
        if record.outcome.kind == "failed"
    ]


async def look_at(config: StudyConfig) -> OpenRuntime:
    """Identify the runtime and the machine.

    Raises:
        InputError: the runtime is not installed.

    """
    runtime = make_runtime(config.runtime)
    return OpenRuntime(runtime, await collect_environment(await runtime.identity()))


async def measure_boots(
    config: StudyConfig,
    installed: OpenRuntime,
    folder: Path,
    boots: int,
    *,
    observer: StudyObserver = SILENT,
) -> tuple[Record, ...]:
    """Boot the config's default this many times, measure every workload in each boot, and append the records to the
    journal.

    Raises:
        BusyError: another run writes into the folder.
        TrialFault: a process of a server could not be stopped.
        StoreError: a record cannot be written.

    """
    journal = Journal(folder)
    measured: list[Record] = []
    with claim_folder(folder):
        records = StudyRecords(config, installed.environment.fingerprint, journal.read().records)
        trials = [Trial(runtime=config.default, workload=workload) for workload in config.workloads_of("confirm")]
        whole = TrialSession(
            study=config.name,
            runtime=installed.runtime,
            environment=installed.environment,
            journal=journal,
            folder=folder,
            ready_timeout_s=config.runtime.ready_timeout_s,
            price_per_gpu_hour=config.price_per_gpu_hour,
            observer=observer,
        )
        async with open_session(whole) as session:
            for _ in range(boots):
                found = await run_boot(
                    session, [PlannedTrial(trial, records.next_occasion(trial), "confirm") for trial in trials]
                )
                for record in found:
                    records.add(record)
                measured += found
    return tuple(measured)
