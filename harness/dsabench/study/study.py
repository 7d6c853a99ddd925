"""One study from its config to its verdict: plan, baseline, search, confirmation, gate, ablation, verdict."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from dsabench.config.launch_args import with_args
from dsabench.config.load import load_study
from dsabench.config.mistakes import unknown_word
from dsabench.config.runtime_kinds import why_gpus_untold
from dsabench.config.specs import StudyConfig
from dsabench.errors import InputError, MachineGone
from dsabench.model.runtime import RuntimeSpec
from dsabench.model.space import require_some
from dsabench.model.study_result import Finalist, StudyResult
from dsabench.model.verdict import Verdict
from dsabench.results.ablation import ablation_of
from dsabench.results.journal import claim_folder
from dsabench.results.machines import machine_name
from dsabench.results.scores import scored_settings
from dsabench.results.study_records import StudyRecords
from dsabench.runtimes.kinds import make_runtime
from dsabench.signals import run_loop, stop_at_any_signal
from dsabench.study.ablation import index_of_reduced, next_ablation_boot, reduced_setting, winner_of
from dsabench.study.budget import RunLimits, trials_left, why_ablation_stops, why_confirmation_stops, why_search_stops
from dsabench.study.context import (
    StudyContext,
    context_of_records,
    machine_of,
    needs_of,
    open_context,
    with_journal,
)
from dsabench.study.lanes import run_lanes
from dsabench.study.machines import Cluster, Machine
from dsabench.study.memory import error_of
from dsabench.study.next_boot import (
    BootPlan,
    choose_finalist,
    confirm_boots_left,
    confirmed_winner,
    next_baseline_boot,
    next_confirm_boot,
    next_search_boot,
)
from dsabench.study.plan import DryRun, has_next_boot, make_dry_run
from dsabench.study.proposers import PROPOSERS, make_proposer
from dsabench.study.session import SILENT, StudyObserver, TrialSession, open_session
from dsabench.study.shared import SharedStudy
from dsabench.study.space_check import refuse_unprovable
from dsabench.study.verdict import conclude
from dsabench.study.worker import BootWorker, Reservations, WhyStop

if TYPE_CHECKING:
    from dsabench.study.gate import AccuracyGate


@dataclass(frozen=True, slots=True)
class Study:
    """One study: its config, the folder of its journal, and how many lanes a run uses."""

    config: StudyConfig
    folder: Path
    lanes: int = 1
    """Number of servers that run at the same time. Each gets an equal share of the GPUs and cores."""
    again: bool = False
    """Start a new round, which measures everything once more."""
    shared_in: str | None = None
    """URL of the PostgreSQL database through which several machines measure it."""

    @classmethod
    def from_config(
        cls,
        config: str | Path | StudyConfig,
        *,
        results: str | Path | None = None,
        lanes: int = 1,
        again: bool = False,
        max_trials: int | None = None,
        max_boots: int | None = None,
        time_s: float | None = None,
        gpu_hours: float | None = None,
        confirm_boots: int | None = None,
        ablate: bool = False,
        proposer: str | None = None,
        seed: int | None = None,
        first: bool = True,
        launch_env: Sequence[str] = (),
        launch_args: Sequence[str] = (),
        shared_in: str | None = None,
    ) -> Study:
        """Load a study.

        Args:
            config: a path, a name such as `local` (for `configs/local.yaml`), or a loaded config.
            results: folder of the journal; None is `results/NAME`.
            lanes: number of servers at the same time.
            again: start a new round.
            max_trials: replaces the config's limit of search trials.
            max_boots: replaces the config's limit of boots.
            time_s: replaces the config's time limit, in seconds.
            gpu_hours: replaces the config's limit of GPU-hours.
            confirm_boots: replaces the config's boots per side of the confirmation; its max_boots grows with them.
            ablate: also boot the winner without each of its changes, as `budget.ablate` does.
            proposer: replaces the kind of the config's proposer.
            seed: replaces its seed.
            first: False leaves the config's `first` out: the proposer chooses every setting but the default.
            launch_env: NAME=VALUE pairs that are added to `runtime.launch.env`.
            launch_args: NAME=VALUE pairs that are added to `runtime.base.args`.
            shared_in: URL of the PostgreSQL database through which several machines measure it.

        Raises:
            InputError: there is no such config, it has a mistake, or the limits leave no boot for the search.

        """
        loaded = config if isinstance(config, StudyConfig) else load_study(config)
        if not first:
            loaded = loaded.model_copy(update={"first": (), "memory": None})
        given = {"max_trials": max_trials, "max_boots": max_boots, "time_s": time_s, "confirm_boots": confirm_boots}
        given |= {"gpu_hours": gpu_hours, "ablate": ablate or None}
        limited = _with_limits(loaded, {name: value for name, value in given.items() if value is not None})
        limited = _with_proposer(limited, proposer, seed)
        whole = with_launch_env(limited, launch_env)
        whole = whole.model_copy(update={"runtime": with_args(whole.runtime, launch_args)})
        folder = Path("results") / whole.name if results is None else Path(results)
        return cls(whole, folder, lanes, again, shared_in)

    def plan(self, observer: StudyObserver = SILENT) -> DryRun:
        """Plan a run and estimate its cost. Starts nothing and needs no installed runtime."""
        self._check()
        context = with_journal(run_loop(self._open(observer, for_plan=True)), observer, again=self.again)
        version = context.environment.runtime.version
        return make_dry_run(context.records(), context.limits, context.space, context.rules, version)

    def run(self, observer: StudyObserver = SILENT) -> StudyResult:
        """Measure what the journal lacks, then judge. A second run continues where the first one stopped.

        Raises:
            InputError: the runtime is not installed, or this config can never give a verdict.
            BusyError: another run writes into the folder.
            TrialFault: a process of a server could not be stopped, so later measurements could not be trusted.
            StoreError: a record cannot be written.
            KeyboardInterrupt: Ctrl-C, TERM or HUP. What was measured is kept.

        """
        _require_no_loop()
        self._check()
        stop_at_any_signal()
        opened = run_loop(self._open(observer))
        with claim_folder(self.folder), self._joined(opened) as joined:
            try:
                context = with_journal(joined, observer, again=self.again)
                with observer:
                    if context.shares and has_next_boot(context.records(), context.limits):
                        # Open the gate first: if its questions are missing, that must fail now and not after hours of
                        # boots.
                        run_loop(_gate_of(context, context.session(observer)))
                        run_lanes(context, partial(measure, with_gate=False), observer)
                    return run_loop(_measure_all(context, observer))
            finally:
                Reservations(self.folder).remove()

    def run_on(self, cluster: Cluster, observer: StudyObserver = SILENT) -> StudyResult:
        """Do the same as `run`, with boots on the machines of a cluster. All search and confirm; both sides of a pair are of one machine.

        Raises:
            InputError: no machine can boot, or as `run` raises.
            MachineGone: the last machine boots no more. What was measured is kept.

        """
        _require_no_loop()
        self._check()
        if self.lanes > 1:
            raise InputError("--executor ray: the machines of the cluster are the lanes; leave --lanes out")
        stop_at_any_signal()
        return run_loop(self._run_on(cluster, observer))

    async def _run_on(self, cluster: Cluster, observer: StudyObserver) -> StudyResult:
        needs = needs_of(self.config, make_runtime(self.config.runtime).gpus)
        async with cluster.machines(self.config, needs, observer) as machines:
            lanes, first = len(machines), machines[0].environment
            opened = await open_context(self.config, self.folder, observer, lanes=lanes, elsewhere=first)
            with claim_folder(self.folder), self._joined(opened) as joined:
                try:
                    context = with_journal(joined, observer, again=self.again)
                    await _gate_of(context, context.session(SILENT))  # missing questions must fail now
                    with observer:
                        return await _measure_on(machines, context, observer)
                finally:
                    Reservations(self.folder).remove()

    async def run_async(self, observer: StudyObserver = SILENT) -> StudyResult:
        """Do the same as `run` inside a running event loop, as in a notebook.

        Uses one lane. The owner of the loop handles signals.

        Raises:
            InputError: more than one lane is requested, or as `run` raises.

        """
        if self.lanes > 1:
            raise InputError("lanes are separate processes, which a running event loop cannot start: use Study.run")
        self._check()
        opened = await self._open(observer)
        with claim_folder(self.folder), self._joined(opened) as joined:
            try:
                with observer:
                    return await _measure_all(with_journal(joined, observer, again=self.again), observer)
            finally:
                Reservations(self.folder).remove()

    def conclude(self, observer: StudyObserver = SILENT) -> StudyResult:
        """Judge the existing records. Boots nothing and works on any machine.

        Raises:
            InputError: there is no record of the study, or the questions of the gate are missing.

        """
        self._check()
        return run_loop(measure(context_of_records(self.config, self.folder, observer), observer))

    async def _open(self, observer: StudyObserver, *, for_plan: bool = False) -> StudyContext:
        return await open_context(self.config, self.folder, observer, lanes=self.lanes, for_plan=for_plan)

    @contextmanager
    def _joined(self, context: StudyContext) -> Iterator[StudyContext]:
        """With what other machines have measured of it, where it is shared. A run must hold the claim of the folder.

        Raises:
            InputError: the storage cannot be opened, or the journal has records in the places of others.
            StoreError: a record cannot be written.

        """
        if self.shared_in is None:
            yield context
            return
        shared = SharedStudy(self.shared_in, self.config.name, context.environment.fingerprint)
        try:
            yield replace(context, journal=shared.join(self.folder))
        finally:
            shared.close()

    def _check(self) -> None:
        refuse_unprovable(self.config.objective, self.config.workloads)
        require_some(self.config.space, self.config.runtime.base)


async def _measure_on(machines: Sequence[Machine], context: StudyContext, observer: StudyObserver) -> StudyResult:
    """Search on all machines at the same time, then confirm on all; then measure what is left on the first one that still boots."""
    contexts = [machine_of(context, machine.environment) for machine in machines]
    alive = set(range(len(machines)))

    async def work(index: int) -> None:
        its = contexts[index]
        told = observer.for_lane(index + 1) if len(machines) > 1 else observer
        worker = BootWorker(its.session(told), its, machines[index], index)
        gate = await _gate_of(its, its.session(SILENT), machines[index]) if its.config.gates_of_settings else None
        try:
            await _search(worker, its, gate)
            # Of a study that other processes measure too, the first machine confirms beside theirs, in `measure`.
            if len(machines) > 1 and not worker.shares_turns:
                await _confirm_beside(worker, its.limits, partial(others, index))
        except MachineGone as error:
            alive.discard(index)
            observer.note(f"warning: {error}; what is left is measured without it")

    def others(index: int) -> set[str]:
        return {machine_name(contexts[other].environment) for other in alive - {index}}

    working = [asyncio.ensure_future(work(index)) for index in range(len(machines))]
    try:
        await asyncio.gather(*working)
    finally:
        for task in working:
            task.cancel()
        await asyncio.gather(*working, return_exceptions=True)
    for index in sorted(alive):
        try:
            return await measure(contexts[index], observer, machine=machines[index])
        except MachineGone as error:
            observer.note(f"warning: {error}; another one goes on")
    raise MachineGone("no machine of the cluster boots any more; what is measured is kept")


async def _search(worker: BootWorker, context: StudyContext, gate: AccuracyGate | None) -> str | None:
    """Baseline, interrupted settings, settings listed in the config, settings from the proposer. Returns why it stopped."""
    limits, proposer = context.limits, make_proposer(context.config)

    def baseline(records: StudyRecords) -> BootPlan | None:
        return next_baseline_boot(records, limits.round, trials_left(records, limits))

    def search(records: StudyRecords) -> BootPlan | None:
        return next_search_boot(records, limits.round, proposer, trials_left(records, limits))

    score = None if gate is None else gate.of_settings
    return await worker.take_boots([baseline, search], why_search_stops, "search", score)


async def _confirm_beside(worker: BootWorker, limits: RunLimits, others: Callable[[], set[str]]) -> None:
    """Confirm the best setting together with `others`, machines that do so at the same time."""
    best = choose_finalist(worker.look(), limits.round)
    if best is not None:
        await worker.confirm_beside(best.spec, others, why_confirmation_stops)


async def measure(
    context: StudyContext, observer: StudyObserver, *, with_gate: bool = True, machine: Machine | None = None
) -> StudyResult:
    """Boot what the records lack, in the order of the code below. Each record is on disk before the next boot starts."""
    config, limits = context.config, context.limits
    async with open_session(context.session(observer)) as session:
        worker = BootWorker(session, context, machine)
        whole = await _gate_of(context, session, machine) if with_gate or config.gates_of_settings else None
        gate = whole if with_gate else None

        stopped = await _search(worker, context, whole)
        if worker.shares_turns:
            await _confirm_beside(worker, limits, worker.confirming)
        await worker.wait_to_conclude()
        await _complete_scores(worker, context, gate)

        # Best setting and baseline boot in turns, so that a drift of the machine hits both. If the gate refuses the
        # best setting, the next best one follows.
        finalists: list[Finalist] = []
        for index in range(1 if gate is None else config.finalists):
            records = worker.look()
            refused = {one.candidate.spec.id for one in finalists}
            best = choose_finalist(records, limits.round, refused)
            if best is None:
                break
            boots = confirm_boots_left(records, limits.round, best.spec, index)
            # The budget reserves boots for the first finalist only. Do not start another one that cannot be finished.
            if index and boots and (why := why_confirmation_stops(records, limits, boots)) is not None:
                stopped = f"the next best setting was not confirmed: {why}"
                break
            cut, accuracy = await _confirm(worker, context, gate, best.spec, index=index, unless=why_confirmation_stops)
            best = confirmed_winner(worker.look(), limits.round, best)
            if cut is not None:
                stopped = f"the confirmation was cut short: {cut}"
                if index:
                    break
            finalists.append(Finalist(best, index, accuracy))
            if cut is not None or not finalists[-1].is_less_accurate:
                break

        # A gate that is not asked here may refuse the winner.
        if with_gate or config.gate is None:
            stopped = await _ablate(worker, context, finalists, gate, stopped)
        return conclude(worker.look(), context, finalists, stopped)


async def _measure_all(context: StudyContext, observer: StudyObserver) -> StudyResult:
    """Measure what the lanes have left, and say how good a guess earlier studies were."""
    result = await measure(context, observer)
    if (said := error_of(context.config, result.candidates)) is not None:
        observer.note(said)
    return result


async def _complete_scores(worker: BootWorker, context: StudyContext, gate: AccuracyGate | None) -> None:
    """Have every searched setting answer what the gate asks all of them, within the limits."""
    if gate is None or not context.config.gates_of_settings:
        return
    for one in scored_settings(worker.look(), context.limits.round):
        if one.score.value is not None and why_ablation_stops(worker.look(), context.limits, 1) is None:
            await gate.complete(one.spec)


async def _confirm(
    worker: BootWorker,
    context: StudyContext,
    gate: AccuracyGate | None,
    spec: RuntimeSpec,
    *,
    index: int,
    unless: WhyStop,
) -> tuple[str | None, tuple[Verdict, ...]]:
    """Boot a finalist and the default in turns, and ask the gate. Returns why that was cut short, and the gate's verdicts."""
    limits = context.limits
    # The gate costs hours, so it runs only where the setting may change answers.
    guard = gate if gate is not None and gate.applies(spec) else None
    turns = partial(next_confirm_boot, round_=limits.round, best=spec, index=index)
    # Score a side in its last boot, after everything else in it is measured: the eval must not disturb the load tests.
    cut = await worker.take_boots([turns], unless, "confirm", None if guard is None else guard.of_finalists)
    may_boot = cut is None and limits.closed is None
    return cut, () if guard is None else await guard.judge(spec, may_boot)


async def _ablate(
    worker: BootWorker,
    context: StudyContext,
    finalists: list[Finalist],
    gate: AccuracyGate | None,
    stopped: str | None,
) -> str | None:
    """Boot the winner beside itself without each of its changes; confirm what remains of it as one more finalist.

    Returns why the study stopped.
    """
    limits = context.limits
    found = winner_of(worker.look(), limits.round, finalists)
    if found is None:
        return stopped
    winner = found.candidate.spec
    turns = partial(next_ablation_boot, round_=limits.round, winner=winner)
    cut = await worker.take_boots([turns], why_ablation_stops, "ablate")
    reduced = ablation_of(worker.look(), winner, limits.round).reduced
    if cut is None and reduced is not None:
        index = index_of_reduced(context.config)
        cut, accuracy = await _confirm(worker, context, gate, reduced, index=index, unless=why_ablation_stops)
        finalists.append(Finalist(reduced_setting(worker.look(), reduced, limits.round), index, accuracy))
    return stopped if cut is None else f"the ablation of the best setting was cut short: {cut}"


async def _gate_of(context: StudyContext, session: TrialSession, machine: Machine | None = None) -> AccuracyGate | None:
    if not context.config.gates:
        return None
    from dsabench.study.gate import open_gate  # noqa: PLC0415  (graders and questions, which most studies do without)

    return await open_gate(context.config.gates, session, context.config.default, context.limits.round, machine)


def _require_no_loop() -> None:
    with suppress(RuntimeError):
        asyncio.get_running_loop()
        raise InputError("an event loop is already running, as in a notebook: use `await study.run_async()`")


def _with_limits(config: StudyConfig, given: dict[str, float]) -> StudyConfig:
    limited = config.model_copy(update={"budget": config.budget.model_copy(update=given)})
    if limited.budget.ablate and (why := limited.budget.why_no_ablation) is not None:
        raise InputError(f"--ablate {why}")
    if given.get("gpu_hours") is not None and (why := why_gpus_untold(config.runtime.kind)) is not None:
        raise InputError(f"--gpu-hours: {why}")
    to_confirm, max_boots = limited.boots_to_confirm, given.get("max_boots")
    if max_boots is not None and max_boots <= to_confirm:
        raise InputError(
            f"--max-boots {max_boots} leaves no boot for the search: the confirmation takes {to_confirm} "
            "(budget.confirm_boots a side)"
        )
    return limited.with_boots_as_before(config) if max_boots is None else limited


def _with_proposer(config: StudyConfig, kind: str | None, seed: int | None) -> StudyConfig:
    if kind is not None and kind not in PROPOSERS:
        raise InputError(f"--proposer: {unknown_word('proposer', kind, PROPOSERS)}")
    given = {"kind": kind, "seed": seed}
    told = {name: value for name, value in given.items() if value is not None}
    return config.model_copy(update={"proposer": config.proposer.model_copy(update=told)})


def with_launch_env(config: StudyConfig, pairs: Sequence[str]) -> StudyConfig:
    """The config with NAME=VALUE pairs added to `runtime.launch.env`.

    Raises:
        InputError: one is no such pair.

    """
    if not pairs:
        return config
    launch, given = config.runtime.launch, dict(map(_pair, pairs))
    changed = launch.model_copy(update={"env": MappingProxyType({**launch.env, **given})})
    return config.model_copy(update={"runtime": config.runtime.model_copy(update={"launch": changed})})


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name.isidentifier():
        # The value may be a secret, so it is not repeated.
        raise InputError("--launch-env: use NAME=VALUE, such as PYTHONPATH=/opt/sglang")
    return name, value
