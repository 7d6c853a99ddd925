"""A machine beside what was published: each server boots once, takes its loads, and answers its evals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from dsabench.config.load import load_eval, load_published, published_file
from dsabench.config.runtime_kinds import has_random_weights, runtime_kinds
from dsabench.config.specs import AcceptEval, AcceptServer, StudyConfig
from dsabench.errors import InputError, TrialFault
from dsabench.evals.forecast import asking_s
from dsabench.evals.plan import Plan, Wishes, with_wishes
from dsabench.evals.published import Beside, beside_record
from dsabench.model.record import Failed, Measured, Metric, Record, Scored, Trial
from dsabench.reporting.published_comparison import SideBySide, hold_beside
from dsabench.reporting.serving_run import published_run, recorded_run
from dsabench.results.journal import claim_folder
from dsabench.runtimes.protocol import Server
from dsabench.signals import run_loop, stop_at_any_signal
from dsabench.study.booted_eval import BootedEval, plan_eval
from dsabench.study.context import StudyContext, open_context
from dsabench.study.forecast import estimate_cost
from dsabench.study.session import SILENT, PlannedTrial, StudyObserver, TrialSession, open_session
from dsabench.study.trial import run_boot, stop_if_server_dies


@dataclass(frozen=True, slots=True)
class AcceptedLoad:
    """A load of a server."""

    name: str
    record: Record | None
    """None until it is measured."""
    fault: str | None = None
    """Why it is not, if it was tried."""
    beside: SideBySide | None = None
    """The published run and this one; None where none was named."""


@dataclass(frozen=True, slots=True)
class AcceptedEval:
    """An eval of a server."""

    name: str
    record: Record | None
    """None until it has a score."""
    score: Beside | None = None
    """Beside that of the published run that differs least from this one."""

    @property
    def ours(self) -> Metric | None:
        """The score with its interval."""
        scored = None if self.record is None else self.record.outcome
        return scored.metrics.get("score") if isinstance(scored, Scored) else None

    @property
    def says(self) -> str:
        """Where the score lies beside the published one, or why nothing is said of it."""
        if self.record is None:
            return "not asked"
        if self.score is not None:
            return self.score.word
        at_random = has_random_weights(self.record.trial.runtime, self.record.resolved)
        return "random weights" if at_random else "nothing published to compare with"


@dataclass(frozen=True, slots=True)
class AcceptedServer:
    """One server of an acceptance."""

    name: str
    loads: tuple[AcceptedLoad, ...]
    evals: tuple[AcceptedEval, ...]


@dataclass(frozen=True, slots=True)
class Acceptance:
    """All servers, and what this run measured of them."""

    servers: tuple[AcceptedServer, ...]
    measured: int

    @property
    def missing(self) -> tuple[str, ...]:
        """Loads and evals without a result."""
        parts = [(server.name, one.name, one.record) for server in self.servers for one in server.loads]
        parts += [(server.name, one.name, one.record) for server in self.servers for one in server.evals]
        return tuple(f"{server}/{name}" for server, name, record in parts if record is None)

    @property
    def below(self) -> tuple[str, ...]:
        """Evals whose interval lies below the published score."""
        scores = [(server.name, one.name, one.score) for server in self.servers for one in server.evals]
        return tuple(f"{server}/{name}" for server, name, score in scores if score is not None and score.is_below)


@dataclass(frozen=True, slots=True)
class AcceptPrice:
    """What one server still has to do."""

    server: str
    loads: int
    evals: tuple[str, ...]
    seconds: float
    gpu_hours: float | None
    """None if no GPU is known."""
    open_evals: tuple[str, ...]
    """Evals whose time is not known and not counted."""


def price_acceptance(config: StudyConfig, folder: Path) -> tuple[AcceptPrice, ...]:
    """Forecast each server, at assumed speeds. Starts nothing and needs no installed runtime.

    Raises:
        InputError: the runtime's rules refuse a server.

    """
    kind = runtime_kinds()[config.runtime.kind]
    prices = []
    for server in config.accept:
        context = run_loop(open_context(server.study, folder, for_plan=True))
        loads = _lacking(context)
        scored = {one.trial.workload.name for one in _records(context) if isinstance(one.outcome, Scored)}
        asked = [one for one in server.evals if load_eval(one.eval).name not in scored]
        specs = [with_wishes(load_eval(one.eval), Wishes(repeat=one.repeat), config.runtime.model) for one in asked]
        took = {spec.name: asking_s(spec, spec.repeat, kind.stream_tok_s, kind.prefill_tok_s) for spec in specs}
        cost = estimate_cost(context.records())
        seconds = cost.of(1, len(loads)) + sum(filter(None, took.values())) if loads or asked else 0.0
        gpus = context.rules.gpus(server.study.default)
        open_evals = tuple(name for name, known in took.items() if known is None)
        prices.append(
            AcceptPrice(server.name, len(loads), tuple(took), seconds, gpus * seconds / 3600 or None, open_evals)
        )
    return tuple(prices)


def accept(config: StudyConfig, folder: Path, observer: StudyObserver = SILENT) -> Acceptance:
    """Measure what the journal lacks, then hold everything beside the published figures.

    Raises:
        InputError: a runtime is not installed, its rules refuse a server, or the questions of an eval are missing.
        BusyError: another run writes into the folder.
        StoreError: a record cannot be written.
        TrialFault: a process of a server could not be stopped.
        KeyboardInterrupt: Ctrl-C, TERM or HUP. What was measured is kept.

    """
    if not config.accept:
        raise InputError(f"{config.name}: the config has no key `accept`, which names servers, loads and evals")
    stop_at_any_signal()
    return run_loop(_accept(config, folder, observer))


async def _accept(config: StudyConfig, folder: Path, observer: StudyObserver) -> Acceptance:
    # What is missing is told before anything boots.
    plans = [[await _plan(one, server) for one in server.evals] for server in config.accept]
    opened = [await open_context(server.study, folder, observer) for server in config.accept]
    with claim_folder(folder), observer:
        measured = sum([await _serve(*pair, observer) for pair in zip(opened, plans, strict=True)])
    pairs = zip(config.accept, opened, plans, strict=True)
    return Acceptance(tuple(_outcome(*pair) for pair in pairs), measured)


async def _plan(asked: AcceptEval, server: AcceptServer) -> Plan:
    return await plan_eval(asked.eval, asked.data, server.study.runtime.model, asked.repeat)


async def _serve(context: StudyContext, plans: Sequence[Plan], observer: StudyObserver) -> int:
    """Boot a server if it lacks something; returns the number of records."""
    before = len(_records(context))
    async with open_session(context.session(observer)) as session:
        spec, loads = context.config.default, _lacking(context)
        evals = [BootedEval(session, plan, "search") for plan in plans]
        lacking = [one for one in evals if one.recorded(spec) is None]
        if loads:
            await run_boot(session, loads, partial(_ask, context, lacking))
        elif lacking:
            await _serve_for_evals(context, session, lacking)
    return len(_records(context)) - before


async def _serve_for_evals(context: StudyContext, session: TrialSession, evals: Sequence[BootedEval]) -> None:
    try:
        async with session.runtime.serve(context.config.default, await session.place()) as server:
            session.observer.boot_ready(server.boot_s)
            await _ask(context, evals, server)
    except TrialFault as fault:
        if fault.kind == "not_gone":
            raise
        session.observer.note(f"{context.config.name}: {fault.kind}: {fault.message}")


async def _ask(context: StudyContext, evals: Sequence[BootedEval], server: Server) -> None:
    for one in evals:
        try:
            await stop_if_server_dies(server, one.ask(context.config.default, server))
        except TrialFault as fault:
            kept = "its finished samples are kept"
            one.session.observer.note(f"{one.plan.task.name} was interrupted ({fault.kind}: {fault.message}); {kept}")
            return


def _records(context: StudyContext) -> list[Record]:
    """Of this server, in this environment."""
    spec, fingerprint = context.config.default, context.environment.fingerprint
    found = context.journal.read().records
    return [one for one in found if one.trial.runtime == spec and one.environment.fingerprint == fingerprint]


def _measured(context: StudyContext) -> dict[str, Record]:
    """Trial → its latest measurement."""
    return {record.trial.id: record for record in _records(context) if isinstance(record.outcome, Measured)}


def _lacking(context: StudyContext) -> list[PlannedTrial]:
    """Loads without a measurement. A failed one is tried again."""
    records, known = context.records(), _measured(context)
    config = context.config
    trials = (Trial(runtime=config.default, workload=workload) for workload in config.workloads_of("search"))
    return [PlannedTrial(one, records.next_occasion(one), "search") for one in trials if one.id not in known]


def _outcome(server: AcceptServer, context: StudyContext, plans: Sequence[Plan]) -> AcceptedServer:
    known = _measured(context)
    loads = []
    for workload in server.study.workloads_of("search"):
        trial = Trial(runtime=server.study.default, workload=workload).id
        record = known.get(trial)
        fault = None if record is not None else _fault(context, trial)
        loads.append(AcceptedLoad(workload.name, record, fault, _beside(record, server.beside.get(workload.name))))
    session = context.session(SILENT)
    evals = []
    for plan in plans:
        record = BootedEval(session, plan, "search").recorded(server.study.default)
        beside = [] if record is None else beside_record(record, plan.spec)
        score = next((one for one in beside if one.metric == "score"), None)
        evals.append(AcceptedEval(plan.task.name, record, score))
    return AcceptedServer(server.name, tuple(loads), tuple(evals))


def _fault(context: StudyContext, trial: str) -> str | None:
    failed = [one.outcome for one in _records(context) if one.id == trial and isinstance(one.outcome, Failed)]
    return f"{failed[-1].fault}: {failed[-1].message.partition(chr(10))[0]}" if failed else None


def _beside(record: Record | None, published: str | None) -> SideBySide | None:
    file = None if published is None else published_file(published)
    if record is None or file is None:
        return None
    return hold_beside(published_run(load_published(file)), recorded_run(record.study, (record,)))
