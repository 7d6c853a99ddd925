"""From the request of a study to what it came to: resume, measure, and look at what is left."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import typer
from rich.console import Console

from dsabench.cli.progress import make_progress
from dsabench.cli.run_lanes import LaneOrder, measure_in_lanes
from dsabench.cli.show_plan import SweepPlan
from dsabench.cli.study_request import Request
from dsabench.config.specs import StudyConfig
from dsabench.errors import InputError, StoreError
from dsabench.machine.environment import collect_environment
from dsabench.model.environment import Environment
from dsabench.model.runtime import Refuse
from dsabench.model.study_result import StudyResult
from dsabench.results.journal import Journal, claim_folder
from dsabench.results.study_records import StudyRecords, environments
from dsabench.runtimes.choose import make_runtime
from dsabench.runtimes.cores import lease_cores
from dsabench.runtimes.protocol import Runtime
from dsabench.signals import ignore_interrupts, run_loop, stop_at_any_signal
from dsabench.study.budget import Purse
from dsabench.study.plan import Forecast, WorkLeft, has_work, make_forecast, why_idle
from dsabench.study.session import Outlook, TrialSession, identity_for_plan, outlook_of
from dsabench.study.space import require_some
from dsabench.study.space_check import refuse_unprovable, require_legal_default
from dsabench.study.study import Sweep
from dsabench.study.verdict import conclude

if TYPE_CHECKING:
    from dsabench.study.gate import AccuracyGate

_MARGIN = 1.2
"""Boots take their time: more than is forecast is asked for."""
_RECORDS_ALONE = "only the records were asked (--conclude)"


@dataclass(frozen=True, slots=True)
class Study:
    """A study as a run left it."""

    request: Request
    config: StudyConfig
    """With the command line's limits."""
    journal: Journal
    environment: Environment
    """Of the records."""
    plan: SweepPlan
    """What is not measured yet, for a run that begins now; after a run whatever time that takes."""
    result: StudyResult | None
    """None where it was only planned."""

    def left(self) -> WorkLeft:
        """What the study lacks under its limits, that of time left out."""
        rest = self.plan.rest()
        lacking = 0 if self.result is None else self.result.unconfirmed
        # A plan does not know what the gate said: after a refusal another setting is confirmed.
        if rest.boots or not lacking or self.plan.purse.stops_confirmation(lacking) is not None:
            return rest
        return WorkLeft(confirm_boots=lacking, confirm_trials=lacking * len(self.config.workloads))

    def go_on(self) -> str | None:
        """The command that measures what is left, with more time where there was not enough for a single boot."""
        rest = self.left()
        if not rest.boots:
            return None
        if self.request.conclude or self.result is None or self.result.measured_now:
            return self.request.resume_command()
        return replace(self.request, time_s=math.ceil(_MARGIN * self.plan.seconds_of(rest))).resume_command()


def measure(request: Request, adjusted: StudyConfig) -> Study:
    """Run, resume, only plan or only conclude the study of a config (or of what was made of it)."""
    config = request.apply(adjusted)
    refuse_unprovable(config.objective, config.workloads)
    require_some(config.space, config.runtime.base)
    journal = Journal(request.folder(config))
    notes = Console(stderr=True)
    reading = journal.read()
    for problem in reading.problems:
        notes.print(f"warning: {problem}", markup=False, highlight=False, soft_wrap=True)
    if request.conclude:
        return run_loop(_conclude(request, config, journal, notes))
    stop_at_any_signal()
    started_s = time.monotonic()
    try:
        if request.lanes > 1:
            order = LaneOrder(request.lanes, request.again, request.dry_run, started_s)
            measure_in_lanes(order, config, journal)
            request = replace(request, again=request.again and request.dry_run)
        study = run_loop(_run(request, config, journal, notes, started_s))
    except KeyboardInterrupt:
        ignore_interrupts()
        # A round of which nothing is recorded yet is not there to go on with.
        asked = "" if len(journal.read().records) > len(reading.records) or not request.again else " --again"
        print(
            f"interrupted; what is measured is kept. Go on with:\n  {request.resume_command()}{asked}", file=sys.stderr
        )
        raise typer.Exit(130) from None
    except StoreError as error:
        raise StoreError(f"{error}. When that is mended, go on with: {request.resume_command()}") from error
    if study.result is None or request.lanes == 1:
        return study
    measured_now = len(journal.read().records) - len(reading.records)
    return replace(study, result=replace(study.result, measured_now=measured_now))


async def _run(request: Request, config: StudyConfig, journal: Journal, notes: Console, started_s: float) -> Study:
    runtime = make_runtime(config.runtime)
    if request.dry_run:
        identity, note = await identity_for_plan(runtime, config)
        if note is not None:
            notes.print(f"note: {note}", markup=False, highlight=False, soft_wrap=True)
    else:
        identity = await runtime.identity()
    environment = await collect_environment(identity)
    if config.runtime.launch.command_prefix:
        line = f"note: records have the hardware of this machine ({environment.host}), wherever command_prefix serves"
        notes.print(line, markup=False, highlight=False, soft_wrap=True)
    outlook = await outlook_of(config, identity)
    require_legal_default(config, outlook.refuse)
    ledger = StudyRecords(config, environment.fingerprint, journal.read().records)
    round_ = ledger.latest_round + (1 if request.again and ledger.records else 0)
    result = None
    if not request.dry_run:
        with claim_folder(journal.path.parent):
            # Another sweep may have written between the first reading and the claim.
            ledger = StudyRecords(config, environment.fingerprint, journal.read().records)
            purse = Purse(config.budget, ledger, round_, started_s, request.lanes)
            lab = _Lab(config, runtime, environment, journal, ledger, purse, outlook.refuse)
            result = await _measure(lab, notes)
    return _study(
        request, journal, environment, Purse(config.budget, ledger, round_, lanes=request.lanes), outlook, result
    )


async def _conclude(request: Request, config: StudyConfig, journal: Journal, notes: Console) -> Study:
    """What the records come to, in their own environment: this machine and what is installed on it are not asked.

    Raises:
        InputError: there is no record of the study, or the gate's questions cannot be had.

    """
    records = journal.read().records
    known = environments(config, records)
    if not known:
        raise InputError(f"{journal.path}: no record of the study {config.name} to conclude from")
    environment = known[-1]
    if others := [one.fingerprint for one in known[:-1]]:
        text = f"note: concluded from the latest environment, {environment.fingerprint}; others: {', '.join(others)}"
        notes.print(text, markup=False, highlight=False, soft_wrap=True)
    ledger = StudyRecords(config, environment.fingerprint, records)
    round_ = ledger.latest_round
    purse = Purse(config.budget, ledger, round_, closed=_RECORDS_ALONE)
    bench = TrialSession(config.name, make_runtime(config.runtime), environment, journal, journal.path.parent)
    gate = await _gate_of(config, bench, round_, lambda _: None)
    result = await Sweep(bench, ledger, purse, gate=gate).run()
    left = Purse(config.budget, ledger, round_, lanes=request.lanes)
    return _study(request, journal, environment, left, Outlook(), result)


def _study(
    request: Request,
    journal: Journal,
    environment: Environment,
    purse: Purse,
    outlook: Outlook,
    result: StudyResult | None,
) -> Study:
    config = purse.ledger.config
    if result is not None:
        purse = replace(purse, budget=purse.budget.model_copy(update={"time_s": None}))
    plan = SweepPlan(purse.ledger, purse, make_forecast(purse, outlook.refuse), outlook)
    return Study(request, config, journal, environment, plan, result)


@dataclass(frozen=True, slots=True)
class _Lab:
    config: StudyConfig
    runtime: Runtime
    environment: Environment
    journal: Journal
    ledger: StudyRecords
    purse: Purse
    refuse: Refuse


async def _measure(lab: _Lab, notes: Console) -> StudyResult:
    # A gate may be left to run, or its verdict to be read back, where nothing else is.
    if lab.config.gate is None and not has_work(lab.ledger, lab.purse):
        return conclude(lab.ledger, lab.purse, why_idle(lab.ledger, lab.purse), 0)
    forecast: Forecast = make_forecast(lab.purse, lab.refuse)
    metric = lab.config.objective.metric
    say = lambda text: notes.print(text, markup=False, highlight=False, soft_wrap=True)  # noqa: E731
    async with lease_cores(on_wait=say) as cores:
        with make_progress(notes, metric, forecast) as progress:
            bench = TrialSession(
                study=lab.config.name,
                runtime=lab.runtime,
                environment=lab.environment,
                journal=lab.journal,
                folder=lab.journal.path.parent,
                server_cores=cores.server,
                client_cores=cores.client,
                held_fds=cores.fds,
                ready_timeout_s=lab.config.runtime.ready_timeout_s,
                watch=progress.watch(),
            )
            gate = await _gate_of(lab.config, bench, lab.purse.round, say)
            return await Sweep(bench, lab.ledger, lab.purse, progress.step, lab.refuse, gate).run()


async def _gate_of(
    config: StudyConfig, bench: TrialSession, round_: int, say: Callable[[str], None]
) -> AccuracyGate | None:
    if config.gate is None:
        return None
    from dsabench.study.gate import open_gate  # reads questions and graders, which most studies do without

    return await open_gate(config, bench, round_, say)
