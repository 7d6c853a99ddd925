"""Boots of one setting, one after another: what a regression check measures, in place of a search."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from dsabench.config.specs import StudyConfig
from dsabench.machine.environment import collect_environment
from dsabench.model.environment import Environment
from dsabench.model.record import Record, Trial
from dsabench.results.journal import Journal, claim_folder
from dsabench.results.study_records import StudyRecords
from dsabench.runtimes.choose import make_runtime
from dsabench.runtimes.protocol import Runtime
from dsabench.study.session import SILENT, PlannedTrial, StudyObserver, TrialSession, open_session
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
    config: StudyConfig,
    installed: OpenRuntime,
    folder: Path,
    boots: int,
    on_boot: OnBoot = lambda _n, _r: None,
    *,
    observer: StudyObserver = SILENT,
) -> tuple[Record, ...]:
    """Boot the config's default so many times, every workload in each boot; records are appended to the folder's journal.

    Raises:
        BusyError: somebody else measures into the folder.
        TrialFault: something of a server is still there.
        StoreError: a record cannot be written.

    """
    journal = Journal(folder)
    measured: list[Record] = []
    with claim_folder(folder):
        records = StudyRecords(config, installed.environment.fingerprint, journal.read().records)
        trials = [Trial(runtime=config.default, workload=workload) for workload in config.workloads]
        whole = TrialSession(
            study=config.name,
            runtime=installed.runtime,
            environment=installed.environment,
            journal=journal,
            folder=folder,
            ready_timeout_s=config.runtime.ready_timeout_s,
            observer=observer,
        )
        async with open_session(whole) as session:
            for done in range(1, boots + 1):
                found = await run_boot(
                    session, [PlannedTrial(trial, records.next_occasion(trial), "confirm") for trial in trials]
                )
                for record in found:
                    records.add(record)
                measured += found
                on_boot(done, found)
    return tuple(measured)
