"""Boots of one setting, one after another: what a regression check measures, in place of a search."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from dsabench.config.specs import StudyConfig
from dsabench.machine.environment import collect_environment
from dsabench.model.environment import Environment
from dsabench.model.record import Record, Trial
from dsabench.results.journal import Journal, claim_folder
from dsabench.results.study_records import StudyRecords
from dsabench.runtimes.choose import make_runtime
from dsabench.runtimes.cores import lease_cores
from dsabench.runtimes.protocol import Runtime
from dsabench.study.session import PlannedTrial, TrialSession
from dsabench.study.trial import run_boot

OnBoot = Callable[[int, tuple[Record, ...]], None]
"""Told (boots done, the records of the last one)."""


@dataclass(frozen=True, slots=True)
class OpenRuntime:
    """The runtime of a config and where it stands."""

    runtime: Runtime
    environment: Environment


async def look_at(config: StudyConfig) -> OpenRuntime:
    """What would be measured.

    Raises:
        InputError: the runtime is not there.

    """
    runtime = make_runtime(config.runtime)
    return OpenRuntime(runtime, await collect_environment(await runtime.identity()))


async def measure_boots(
    config: StudyConfig, installed: OpenRuntime, folder: Path, boots: int, on_boot: OnBoot = lambda _n, _r: None
) -> tuple[Record, ...]:
    """Boot the config's default so many times, every workload in each boot; records are appended to the folder's journal.

    Raises:
        BusyError: somebody else measures into the folder.
        TrialFault: something of a server is still there.
        StoreError: a record cannot be written.

    """
    journal, notes = Journal(folder), Console(stderr=True)
    say = lambda text: notes.print(text, markup=False, highlight=False, soft_wrap=True)  # noqa: E731
    measured: list[Record] = []
    with claim_folder(folder):
        ledger = StudyRecords(config, installed.environment.fingerprint, journal.read().records)
        trials = [Trial(runtime=config.default, workload=workload) for workload in config.workloads]
        async with lease_cores(on_wait=say) as cores:
            bench = TrialSession(
                study=config.name,
                runtime=installed.runtime,
                environment=installed.environment,
                journal=journal,
                folder=folder,
                server_cores=cores.server,
                client_cores=cores.client,
                held_fds=cores.fds,
                ready_timeout_s=config.runtime.ready_timeout_s,
            )
            for done in range(1, boots + 1):
                errands = [PlannedTrial(trial, ledger.next_occasion(trial), "confirm") for trial in trials]
                records = await run_boot(bench, errands)
                for record in records:
                    ledger.add(record)
                measured += records
                on_boot(done, records)
    return tuple(measured)
