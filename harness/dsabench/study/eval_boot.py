"""Boot the default setting of a config for an eval; measure its workloads first if requested."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from dsabench.config.specs import StudyConfig
from dsabench.errors import TrialFault
from dsabench.evals.conduct import Setting
from dsabench.evals.server import Served, find_server
from dsabench.machine.environment import collect_environment
from dsabench.model.record import SERVER_LOST, Failed, Trial
from dsabench.results.journal import Journal
from dsabench.results.study_records import StudyRecords
from dsabench.runtimes.kinds import make_runtime
from dsabench.runtimes.protocol import Server
from dsabench.study.booted_eval import setting_of
from dsabench.study.session import SILENT, PlannedTrial, StudyObserver, TrialSession, open_session
from dsabench.study.trial import measure_on


@asynccontextmanager
async def boot_for_eval(
    config: StudyConfig, model: str | None, results: Path, *, bench: bool, observer: StudyObserver = SILENT
) -> AsyncIterator[tuple[Served, Setting]]:
    """Yield the booted default setting of a config.

    With `bench`, its workloads are measured first, on cores of their own.

    Raises:
        InputError: something that the config names is missing.
        TrialFault: the boot failed, or the server died during a measurement.

    """
    runtime = make_runtime(config.runtime)
    session = TrialSession(
        study=config.name,
        runtime=runtime,
        environment=await collect_environment(await runtime.identity()),
        journal=Journal(results),
        folder=results,
        ready_timeout_s=config.runtime.ready_timeout_s,
        price_per_gpu_hour=config.price_per_gpu_hour,
        observer=observer,
    )
    async with AsyncExitStack() as stack:
        if bench:
            await stack.enter_async_context(open_session(session))
        server = await stack.enter_async_context(runtime.serve(config.default, await session.place()))
        if bench:
            await _measure(config, session, server)
        served = await find_server(server.base_url, model)
        yield served, setting_of(session, server, config.default)


async def _measure(config: StudyConfig, session: TrialSession, server: Server) -> None:
    records = StudyRecords(config, session.environment.fingerprint, session.journal.read().records)
    trials = [Trial(runtime=config.default, workload=workload) for workload in config.workloads_of("search")]
    planned = [PlannedTrial(trial, records.next_occasion(trial), "search", records.latest_round) for trial in trials]
    for record in await measure_on(session, server, planned):
        outcome = record.outcome
        if isinstance(outcome, Failed) and outcome.fault in SERVER_LOST:
            raise TrialFault(outcome.fault, outcome.message, stage=outcome.stage, log_tail=outcome.log_tail)
