"""Several boots of a study at once: a process for each share of the machine, which take boots in turns."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from multiprocessing.process import BaseProcess

from rich.console import Console

from dsabench.cli.progress import PlainProgress
from dsabench.config.specs import StudyConfig
from dsabench.errors import DsabenchError, InputError, TrialFault
from dsabench.machine.environment import collect_environment, visible_gpus
from dsabench.model.environment import Environment
from dsabench.model.runtime import RuntimeSpec
from dsabench.results.journal import Journal, claim_folder
from dsabench.results.study_records import StudyRecords
from dsabench.runtimes.choose import make_runtime
from dsabench.runtimes.cores import lease_cores
from dsabench.runtimes.protocol import Runtime
from dsabench.runtimes.shares import Share, split_machine
from dsabench.signals import hold_interrupts, on_each_interrupt, release_interrupts, run_loop, stop_at_any_signal
from dsabench.study.budget import Purse
from dsabench.study.next_boot import listed
from dsabench.study.plan import has_work, make_forecast
from dsabench.study.session import Outlook, TrialSession, identity_for_plan, outlook_of
from dsabench.study.space import legal
from dsabench.study.space_check import require_legal_default
from dsabench.study.worker import Lane, Reservations

_ASKED_FOR_GPUS = 10_000
_PARENT_S = 0.5


@dataclass(frozen=True, slots=True)
class _Lanes:
    """What all processes of a study have in common. `purse` says how far it is and what it may still cost."""

    config: StudyConfig
    runtime: Runtime
    environment: Environment
    """Of the first share."""
    outlook: Outlook
    journal: Journal
    purse: Purse


@dataclass(frozen=True, slots=True)
class LaneOrder:
    """What the command line says of lanes. `started_s` is the monotonic clock at the run's start."""

    lanes: int
    again: bool
    dry_run: bool
    started_s: float


def measure_in_lanes(order: LaneOrder, config: StudyConfig, journal: Journal) -> None:
    """Measure with several processes what can be; the gate and the verdict are left to this one.

    This process stays confined to the first share, as the environment of every record is that of a share. A plan may be
    for another machine: one that has not the shares is only noted.

    Raises:
        InputError: the machine has not that many shares.
        TrialFault: a lane ended with an error.

    """
    runtime = make_runtime(config.runtime)
    if order.dry_run:
        identity, _ = run_loop(identity_for_plan(runtime, config))
    else:
        identity = run_loop(runtime.identity())
    outlook = run_loop(outlook_of(config, identity))
    try:
        shares = run_loop(_shares_of(config, outlook, order.lanes))
    except InputError as error:
        if not order.dry_run:
            raise
        print(f"note: planned for another machine ({error})", file=sys.stderr)
        return
    shares[0].take()
    if order.dry_run:
        return
    environment = run_loop(collect_environment(identity))
    require_legal_default(config, outlook.refuse)
    with claim_folder(journal.path.parent):
        ledger = StudyRecords(config, environment.fingerprint, journal.read().records)
        round_ = ledger.latest_round + (1 if order.again and ledger.records else 0)
        purse = Purse(config.budget, ledger, round_, order.started_s, order.lanes)
        if has_work(ledger, purse):
            _run_lanes(_Lanes(config, runtime, environment, outlook, journal, purse), shares)


async def _shares_of(config: StudyConfig, outlook: Outlook, lanes: int) -> tuple[Share, ...]:
    """The machine's GPUs and cores in as many equal shares, each large enough for every setting.

    Raises:
        InputError: there are not enough, or the config says itself where its servers run.

    """
    launch, variable = config.runtime.launch, "CUDA_VISIBLE_DEVICES"
    if launch.command_prefix or launch.container is not None:
        raise InputError("--lanes: runtime.launch starts servers elsewhere, where GPUs cannot be dealt out from here")
    if variable in launch.env or variable in config.runtime.env:
        raise InputError(f"--lanes: the config sets {variable}, of which each lane has its own")
    gpus = await visible_gpus()
    each = max((outlook.gpus(spec) for spec in _settings(config)), default=0) if gpus else 0
    return split_machine(lanes, sorted(os.sched_getaffinity(0)), gpus, each)


def _settings(config: StudyConfig) -> Iterable[RuntimeSpec]:
    assignments = islice(legal(config.space, config.default.knobs), _ASKED_FOR_GPUS)
    return (config.default, *listed(config), *map(config.spec, assignments))


def _run_lanes(lanes: _Lanes, shares: tuple[Share, ...]) -> None:
    """Fork a process a share and wait until all have ended; a KeyboardInterrupt ends them in order first.

    Forked before this process has threads: what was read and asked before is theirs too. What one that was killed had
    begun, the others take up. Asked to end again, they are told again: they hurry then, as a sweep without lanes does.

    Raises:
        TrialFault: one of them ended with an error, which it has told.

    """
    fork = multiprocessing.get_context("fork")
    running = [
        fork.Process(target=_in_child, args=(lanes, share, number, os.getpid()), name=f"lane {number}")
        for number, share in enumerate(shares, start=1)
    ]
    try:
        with on_each_interrupt(lambda: _tell(running)) as interrupted:
            _start(running)
            if interrupted():  # one of them was not known yet
                _tell(running)
            for process in running:
                process.join()
    finally:
        Reservations(lanes.journal.path.parent).remove()
    killed = [process.name for process in running if (process.exitcode or 0) < 0]
    if killed:
        print(f"warning: {', '.join(killed)} was killed; what is left is measured without it", file=sys.stderr)
    failed = [process.name for process in running if (process.exitcode or 0) > 0]
    if failed:
        raise TrialFault(
            "internal", f"{', '.join(failed)} ended with an error (above); what is measured is kept", stage="boot"
        )


def _start(lanes: Sequence[BaseProcess]) -> None:
    hold_interrupts()
    try:
        for process in lanes:
            process.start()
    except OSError:
        _tell(lanes)
        raise
    finally:
        release_interrupts()


def _tell(lanes: Sequence[BaseProcess]) -> None:
    for process in lanes:
        if process.pid is not None:  # it has been started
            process.terminate()


def _in_child(lanes: _Lanes, share: Share, number: int, parent: int) -> None:
    os.setpgid(0, 0)  # a Ctrl-C is the parent's, which ends each of us once
    stop_at_any_signal()
    try:
        release_interrupts()
        share.take()
        run_loop(_beside_parent(lanes, number, parent))
        hold_interrupts()  # they are too late
    except KeyboardInterrupt:
        os._exit(130)
    except DsabenchError as error:
        hold_interrupts()
        print(f"error: lane {number}: {error}", file=sys.stderr, flush=True)
        os._exit(2 if isinstance(error, InputError) else 3)


async def _beside_parent(lanes: _Lanes, number: int, parent: int) -> None:
    """The lane, for as long as whoever started it lives."""
    watching = asyncio.ensure_future(_until(lambda: os.getppid() != parent))
    watching.add_done_callback(lambda done: None if done.cancelled() else os.kill(os.getpid(), signal.SIGTERM))
    try:
        await _run_lane(lanes, number)
    finally:
        watching.cancel()


async def _until(happened: Callable[[], bool]) -> None:
    while not happened():
        await asyncio.sleep(_PARENT_S)


async def _run_lane(lanes: _Lanes, number: int) -> None:
    config, purse = lanes.config, replace(lanes.purse)
    environment = await collect_environment(lanes.environment.runtime)
    if environment.fingerprint != lanes.environment.fingerprint:
        raise InputError("its share of the machine is not like the first one's, so what they measure is not comparable")
    forecast = make_forecast(purse, lanes.outlook.refuse)
    console = Console(stderr=True)
    progress = PlainProgress(console, config.objective.metric, forecast, purse.started_s, f"lane {number}: ")
    async with lease_cores(on_wait=lambda text: console.print(text, markup=False, highlight=False)) as cores:
        bench = TrialSession(
            study=config.name,
            runtime=lanes.runtime,
            environment=environment,
            journal=Journal(lanes.journal.path.parent),
            folder=lanes.journal.path.parent,
            server_cores=cores.server,
            client_cores=cores.client,
            held_fds=cores.fds,
            ready_timeout_s=config.runtime.ready_timeout_s,
            watch=progress.watch(),
            labels=(f"one of {purse.lanes} lanes",),
        )
        await Lane(bench, purse, progress.step, lanes.outlook.refuse).run()
