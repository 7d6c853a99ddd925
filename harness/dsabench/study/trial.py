"""Run the trials that share one boot: boot, warm up, measure, record.

This is the only place where an exception becomes a record, and so the only one with a broad `except`.
"""

from __future__ import annotations

import asyncio
import time
import traceback
import uuid
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TypeVar

from dsabench.config.runtime_kinds import reload_free_of, runtime_kinds
from dsabench.doctor.load_watch import watch_load
from dsabench.errors import InputError, StoreError, TrialFault
from dsabench.load.judge.reach import OutOfReach
from dsabench.load.judge.summary import summarise
from dsabench.load.judge.validity import ServerInfoPair
from dsabench.load.load_test import LoadRun, Rehearsal, rehearse, run_load_test, warm_up
from dsabench.load.requests import LoadTarget
from dsabench.machine.cpu_use import CpuSnapshot, processes_with, warn_of_others
from dsabench.machine.sampler import MachineSampler
from dsabench.machine.server_gpus import ForeignProcesses, pids_on
from dsabench.model.bottleneck import Bottleneck
from dsabench.model.capacity import CAPACITY_METRICS
from dsabench.model.record import SERVER_LOST, Failed, Measured, Metric, Outcome, Record, Stage, Trial
from dsabench.model.runtime import RuleViolation, RuntimeSpec, labels_of
from dsabench.model.sample import RequestSample
from dsabench.model.secrets import hide_keys, without_secrets
from dsabench.results.samples import samples_name, write_samples
from dsabench.runtimes.orphans import MARK
from dsabench.runtimes.protocol import Server
from dsabench.study.capacity import find_capacity
from dsabench.study.session import PlannedTrial, StudyObserver, TrialSession

Result = TypeVar("Result")


ServerTask = Callable[[Server], Awaitable[None]]
"""What else to do on a server after the trials of its first setting are measured and recorded."""


async def run_boot(
    session: TrialSession,
    trials: Sequence[PlannedTrial],
    task: ServerTask | None = None,
    goes_on: Callable[[], Sequence[PlannedTrial]] = lambda: (),
) -> tuple[Record, ...]:
    """Boot once, measure each trial, append a record for each. All trials must have the same setting.

    The task follows, which records its own outcome: behind the trials, so that it cannot disturb a measurement. Then the server is
    changed to the setting of what `goes_on` returns, and measures it, until that is nothing. A server that refuses the change is left.

    If the boot fails, each trial gets a `Failed` record. If the server dies during a trial, that trial gets one,
    and the others are left for another boot.

    Returns:
        The records that were written.

    Raises:
        InputError: the workload does not fit the server (unknown vocabulary size, missing data file).
        TrialFault: kind `not_gone`: a process of the server could not be stopped, so nothing later can be trusted.
        StoreError: a record could not be written.

    """
    place = await session.place()
    log, started = _RecordWriter(session), _Stopwatch()
    before = pids_on()
    try:
        async with session.runtime.serve(trials[0].trial.runtime, place) as server:
            log.server = server
            if server.gpus:
                marked = frozenset(process.pid for process in processes_with(MARK, server.boot))
                log.others = ForeignProcesses.of_boot(server.gpus, before, marked)
            session.observer.boot_ready(server.boot_s)
            await _record_all(log, trials)
            if task is not None and not log.server_is_lost:
                await task(server)
            while not log.server_is_lost and (more := goes_on()):
                if not await _changed_to(more[0].trial.runtime, server, session.observer):
                    break
                await _record_all(log, more)
    except TrialFault as fault:
        if fault.kind == "not_gone":
            raise
        for planned in trials[len(log.records) :]:
            log.write(planned, _failed(fault), place.boot, started)
    return tuple(log.records)


async def _changed_to(spec: RuntimeSpec, server: Server, observer: StudyObserver) -> bool:
    """Whether the server runs with the setting now."""
    names = sorted(reload_free_of(spec) & spec.knobs.keys())
    try:
        await server.change({name: spec.knobs[name] for name in names})
    except TrialFault as fault:
        observer.note(f"warning: {', '.join(names)} did not change on the running server, so it boots again: {fault}")
        return False
    return True


async def measure_on(session: TrialSession, server: Server, trials: Sequence[PlannedTrial]) -> tuple[Record, ...]:
    """Measure each trial on a running server, append a record for each; stop if the server dies.

    Raises:
        InputError: the workload does not fit the server.
        StoreError: a record could not be written.

    """
    log = _RecordWriter(session, server)
    await _record_all(log, trials)
    return tuple(log.records)


def record_refusal(session: TrialSession, trials: Sequence[PlannedTrial], refusal: RuleViolation) -> tuple[Record, ...]:
    """Append a `Failed` record for each trial of a setting that the rules refuse. Boots nothing.

    Raises:
        StoreError: a record could not be written.

    """
    log, started, boot = _RecordWriter(session), _Stopwatch(), str(uuid.uuid4())
    outcome = Failed(stage="plan", fault="illegal_config", message=hide_keys(refusal.line))
    for planned in trials:
        log.write(planned, outcome, boot, started)
    return tuple(log.records)


def record_fault(session: TrialSession, trials: Sequence[PlannedTrial], fault: TrialFault) -> tuple[Record, ...]:
    """Append a `Failed` record for each trial of a boot that ended elsewhere, without a word.

    Raises:
        StoreError: a record could not be written.

    """
    log, started, boot = _RecordWriter(session), _Stopwatch(), str(uuid.uuid4())
    for planned in trials:
        log.write(planned, _failed(fault), boot, started)
    return tuple(log.records)


@dataclass(slots=True)
class _Stopwatch:
    """Wall-clock start for the record, monotonic start for the duration: the wall clock may jump."""

    at: datetime = field(default_factory=lambda: datetime.now(UTC))
    counter_s: float = field(default_factory=time.perf_counter)

    def elapsed_s(self) -> float:
        return time.perf_counter() - self.counter_s


@dataclass(slots=True)
class _RecordWriter:
    """Writes the records of one boot."""

    session: TrialSession
    server: Server | None = None
    others: ForeignProcesses | None = None
    """None without GPUs, or where the server was not booted here."""
    records: list[Record] = field(default_factory=list)
    server_is_lost: bool = False

    def write(self, planned: PlannedTrial, outcome: Outcome, boot: str, started: _Stopwatch) -> None:
        server = self.server
        record = Record(
            id=planned.trial.id,
            occasion=planned.occasion,
            boot=boot,
            study=self.session.study,
            round=planned.round,
            phase=planned.phase,
            turn=planned.turn,
            trial=planned.trial,
            environment=self.session.environment,
            started_at=started.at,
            duration_s=started.elapsed_s(),
            boot_s=None if server is None else server.boot_s,
            resolved={} if server is None else {k: without_secrets(v) for k, v in server.resolved.items()},
            labels=(*labels_of(planned.trial.runtime), *self.session.labels),
            outcome=outcome,
        )
        self.session.journal.append(record)
        self.records.append(record)
        self.session.observer.record_written(record)


async def _record_all(log: _RecordWriter, trials: Sequence[PlannedTrial]) -> None:
    assert log.server is not None
    for planned in trials:
        try:
            await _record_one(log, log.server, planned)
        except StoreError as error:
            lost = f"what was just measured under workload {planned.trial.workload.name} is lost"
            raise StoreError(f"{error}; {lost}, the records before it are whole") from error
        if log.server_is_lost:
            break


async def _record_one(log: _RecordWriter, server: Server, planned: PlannedTrial) -> None:
    """Measure one trial and append its record, whether it succeeded or failed."""
    log.session.observer.trial_started(planned)
    started = _Stopwatch()
    try:
        outcome: Outcome = await _measure(log.session, server, planned, log.others)
    except (StoreError, InputError):
        raise
    except TrialFault as fault:
        outcome = _failed(fault)
        log.server_is_lost = fault.stage == "boot" or fault.kind in SERVER_LOST
    except Exception as error:  # noqa: BLE001  (an unforeseen fault of ours costs one trial, not the sweep)
        outcome = _internal(error)
    log.write(planned, outcome, server.boot, started)


async def _measure(
    session: TrialSession, server: Server, planned: PlannedTrial, others: ForeignProcesses | None
) -> Measured:
    """Measure and store the samples."""
    trial = planned.trial
    if trial.workload.capacity is None:
        rehearsal = await _prepared(server, trial)
        seen = await _measure_load(session, server, trial, others, rehearsal=rehearsal)
    else:
        seen = await _measure_capacity(session, server, trial, others)
    name = samples_name(trial.id, session.environment.fingerprint, planned.occasion)
    await asyncio.to_thread(write_samples, session.journal.path.parent, name, seen.samples)
    return seen.measured.model_copy(update={"samples": name})


async def _measure_capacity(
    session: TrialSession, server: Server, trial: Trial, others: ForeignProcesses | None
) -> _MeasuredLoad:
    """The load test at the highest load that meets the SLO, with that load as a metric and every probe in the record; at the lowest
    load if none does.
    """
    workload, search, tried = trial.workload, trial.workload.capacity, dict[float, _MeasuredLoad]()
    assert search is not None, "only such a workload comes here"
    rehearsed: Rehearsal | None = None

    async def attainment_at(load: float) -> float:
        nonlocal rehearsed
        probe = Trial(runtime=trial.runtime, workload=workload.at_load(load))
        # The lengths of requests are the same at every rate.
        earlier = None if workload.request_rate is None else rehearsed
        rehearsed = await _prepared(server, probe, earlier)
        # The lowest load is what is measured where none meets the SLO.
        least = None if load == search.lowest else search.attainment
        try:
            tried[load] = await _measure_load(
                session, server, probe, others, rehearsal=rehearsed, least_attainment=least
            )
        except OutOfReach as missed:
            session.observer.note(f"  {workload.name} at {load:g}: stopped, {missed}")
            raise
        met = tried[load].measured.metrics.get("slo_attainment")
        attainment = 0.0 if met is None else met.value  # what was not observed proves nothing
        session.observer.note(f"  {workload.name} at {load:g}: {attainment:.0%} met the SLO")
        return attainment

    load, probes = await find_capacity(workload, attainment_at)
    chosen = tried[search.lowest if load is None else load]
    metrics, said = dict(chosen.measured.metrics), list(chosen.measured.warnings)
    if load is None:
        said.append(f"not even the lowest load of the config ({search.lowest:g}) met the SLO")
    else:
        metrics[CAPACITY_METRICS[workload.load_key]] = Metric(value=load, n=len(probes))
    first, *later = probes
    if any(one.load == first.load and search.is_met_by(one) for one in later):
        said.append(f"{first.load:g} met the SLO when it was tried again, so its first try does not count")
    if load == getattr(workload, workload.load_key):
        said.append("the highest load of the config met the SLO too: the capacity is higher, or just that")
    update = {"metrics": metrics, "warnings": tuple(said), "probes": probes}
    return replace(chosen, measured=chosen.measured.model_copy(update=update))


@dataclass(frozen=True, slots=True)
class _MeasuredLoad:
    """A load test, with what is stored of it."""

    measured: Measured
    samples: tuple[RequestSample, ...]


async def _measure_load(
    session: TrialSession,
    server: Server,
    trial: Trial,
    others: ForeignProcesses | None,
    *,
    rehearsal: Rehearsal,
    least_attainment: float | None = None,
) -> _MeasuredLoad:
    """Measure on a server that is prepared.

    Raises:
        OutOfReach: a smaller share than `least_attainment` meets the SLO.

    """
    begun = None if others is None else others.now()
    seen = await stop_if_server_dies(server, _load(session, server, trial, least_attainment))
    ended = None if others is None else others.now()
    foreign = None if begun is None or ended is None else begun | ended
    try:
        measured = summarise(seen.run, trial.workload, seen.view)
    except TrialFault as fault:
        if (late := late_beside_others(fault, seen.others_share)) is None:
            raise
        raise late from fault
    said = (
        *measured.warnings,
        *_otherwise_than_asked(server),
        rehearsal.warning,
        warn_of_others(seen.others_share),
        _warn_of_foreign(foreign),
    )
    gpus = session.runtime.gpus(trial.runtime)
    metrics = {**measured.metrics, **_rehearsed(rehearsal)}
    metrics |= gpu_cost(measured.metrics, gpus, session.price_per_gpu_hour)
    if foreign is not None:
        metrics["gpu.foreign_processes"] = Metric(value=len(foreign), n=len(server.gpus))
    warnings = tuple(warning for warning in said if warning is not None)
    update = {"metrics": metrics, "warnings": warnings, "bottleneck": seen.bottleneck}
    return _MeasuredLoad(measured.model_copy(update=update), seen.run.samples)


def gpu_cost(metrics: Mapping[str, Metric], gpus: int, price_per_gpu_hour: float | None) -> dict[str, Metric]:
    """GPU-seconds per token, and their price for a million tokens; empty on a CPU."""
    found: dict[str, Metric] = {}
    if not gpus:
        return found
    for throughput, tokens in (("output_throughput_tok_s", "output_token"), ("total_throughput_tok_s", "token")):
        rate = metrics[throughput]
        if rate.value <= 0:
            continue
        each_s = gpus / rate.value
        found[f"gpu_s_per_{tokens}"] = Metric(value=each_s, n=rate.n)
        if price_per_gpu_hour is not None:
            cost = 1e6 * each_s / 3600 * price_per_gpu_hour
            found[f"cost_per_million_{tokens}s_usd"] = Metric(value=cost, n=rate.n)
    return found


def late_beside_others(fault: TrialFault, share: float) -> TrialFault | None:
    """The same fault as a transient one if other processes used the client's cores; else None. A retry may then
    succeed.
    """
    line = warn_of_others(share)
    if fault.kind != "client_saturated" or line is None:
        return None
    return TrialFault(fault.kind, f"{fault.message}; {line.partition(':')[0]}", stage=fault.stage, transient=True)


@dataclass(frozen=True, slots=True)
class _LoadResult:
    """The result of one load test and its circumstances."""

    run: LoadRun
    others_share: float
    """Share of the cores that other processes used during the load."""
    view: ServerInfoPair
    """What the server reported about itself before and after."""
    bottleneck: Bottleneck | None
    """What limited the server meanwhile."""


async def _prepared(server: Server, trial: Trial, earlier: Rehearsal | None = None) -> Rehearsal:
    """Flush, then warm up, or rehearse where the runtime compiles on first use and it was not done `earlier`."""

    async def prepare() -> Rehearsal:
        target = _target(server, trial)
        await server.flush()
        if not runtime_kinds()[trial.runtime.kind].compiles_on_first_use:
            await warm_up(target, trial.workload)
            return Rehearsal()
        return earlier or await rehearse(target, trial.workload, server.flush)

    return await stop_if_server_dies(server, prepare())


async def _load(session: TrialSession, server: Server, trial: Trial, least_attainment: float | None) -> _LoadResult:
    """Flush, so that no prompt is cached, and measure."""
    target = _target(server, trial)
    await server.flush()
    info = await server.info()
    mark = (MARK, server.boot)
    before = CpuSnapshot.now(session.cores, mark)
    sampler = MachineSampler(session.cores, server.gpus)
    async with watch_load(server, info) as watch:
        try:
            run = await run_load_test(
                target,
                trial.workload,
                on_progress=session.observer.requests_done,
                observer=sampler,
                least_attainment=least_attainment,
            )
        except TrialFault as fault:
            # Broken connections are a symptom. If another process answers now, the restart is the cause.
            if (sign := ServerInfoPair(info, await server.info()).restarted) is None:
                raise
            message = f"the server restarted during the run: {sign}; {fault.message}"
            raise TrialFault("server_restarted", message, stage="load", transient=True) from fault
    others_share = CpuSnapshot.now(session.cores, mark).others_share(before)
    view = ServerInfoPair(info, await server.info())
    return _LoadResult(run, others_share, view, None if watch is None else watch.bottleneck(run))


def _rehearsed(rehearsal: Rehearsal) -> dict[str, Metric]:
    """Number of passes of the rehearsal, and the seconds of its first and last pass."""
    passes_s = rehearsal.passes_s
    if not passes_s:
        return {}
    n = len(passes_s)
    return {
        "rehearsal.passes": Metric(value=n, n=n),
        "rehearsal.first_s": Metric(value=passes_s[0], n=1),
        "rehearsal.last_s": Metric(value=passes_s[-1], n=1),
    }


def _warn_of_foreign(pids: frozenset[int] | None) -> str | None:
    if not pids:
        return None
    numbers = ", ".join(map(str, sorted(pids)))
    return f"other processes computed on the server's GPUs ({numbers}): measure again when they are gone"


def _otherwise_than_asked(server: Server) -> tuple[str, ...]:
    """Settings that the server runs with other values than requested."""
    match server.resolved.get("dsabench"):
        case {"differences": list(lines)}:
            return tuple(str(line) for line in lines)
    return ()


def _target(server: Server, trial: Trial) -> LoadTarget:
    """Where the load is sent. The vocabulary size stays unknown if the server does not report it."""
    target = LoadTarget(server.base_url, trial.runtime.model, endpoint=trial.workload.endpoint or "generate")
    match server.resolved:
        case {"reference": {"vocab_size": int(vocab_size)}}:
            return replace(target, vocab_size=vocab_size, tokenizer="bytes")
        case {"dsabench": {"vocab_size": int(vocab_size)}}:
            return replace(target, vocab_size=vocab_size)
    return target


_DEATH_LAG_S = 2.0


async def stop_if_server_dies(server: Server, load: Coroutine[object, object, Result]) -> Result:
    """Return the result of the load, or raise the server's death, whichever happens first."""
    loading = asyncio.ensure_future(load)
    dying = asyncio.ensure_future(server.died())
    try:
        await asyncio.wait({loading, dying}, return_when=asyncio.FIRST_COMPLETED)
        if not dying.done() and loading.exception() is not None:
            # Connections break a moment before the death of a server is noticed. Wait for it, to report the cause and
            # not the symptom.
            await asyncio.wait({dying}, timeout=_DEATH_LAG_S)
        if dying.done() and (error := dying.exception()) is not None:
            raise error
        return await loading
    finally:
        for task in (loading, dying):
            task.cancel()
        await asyncio.gather(loading, dying, return_exceptions=True)


def _failed(fault: TrialFault) -> Failed:
    return Failed(
        stage=fault.stage,
        fault=fault.kind,
        message=hide_keys(fault.message),
        log_tail=fault.log_tail,
        transient=fault.transient,
    )


def _internal(error: Exception, stage: Stage = "load") -> Failed:
    tail = "".join(traceback.format_exception(error))[-8000:]
    return Failed(stage=stage, fault="internal", message=f"{type(error).__name__}: {error}", log_tail=tail)
