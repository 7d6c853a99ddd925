"""A config's runtime, booted for an eval and, if wished, measured first under the config's workloads."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from dsabench.cli.progress import say_record
from dsabench.config.load import load_study
from dsabench.config.specs import StudyConfig
from dsabench.errors import TrialFault
from dsabench.evals.conduct import Setting
from dsabench.evals.server import Served, find_server
from dsabench.machine.environment import collect_environment
from dsabench.model.record import SERVER_LOST, Failed, Trial
from dsabench.model.secrets import without_secrets
from dsabench.results.journal import Journal
from dsabench.results.study_records import StudyRecords
from dsabench.runtimes.choose import make_runtime
from dsabench.runtimes.cores import lease_cores
from dsabench.runtimes.protocol import Place, Server
from dsabench.study.session import PlannedTrial, TrialSession, Watch
from dsabench.study.trial import measure_on


@asynccontextmanager
async def booted(
    name: str, model: str | None, results: Path, *, bench: bool, say: Callable[[str], None]
) -> AsyncIterator[tuple[Served, Setting]]:
    """The default setting of a config, up for as long as the context is open.

    Raises:
        InputError: the config, or what it names, is wrong.
        TrialFault: the boot failed, or the server died while it was measured.

    """
    config = load_study(name)
    runtime = make_runtime(config.runtime)
    environment = await collect_environment(await runtime.identity())
    journal, boot = Journal(results), str(uuid.uuid4())
    async with AsyncExitStack() as stack:
        cores = await stack.enter_async_context(lease_cores(on_wait=say)) if bench else None
        place = Place(
            folder=results / "boots" / boot[:8],
            cores=() if cores is None else cores.server,
            held_fds=() if cores is None else cores.fds,
            ready_timeout_s=config.runtime.ready_timeout_s,
            boot=boot,
        )
        server = await stack.enter_async_context(runtime.serve(config.default, place))
        if cores is not None:
            metric = config.objective.metric
            watch = Watch(on_record=lambda record: say(say_record(record, metric)))
            laid = TrialSession(
                config.name, runtime, environment, journal, results, cores.server, cores.client, watch=watch
            )
            await _measure(config, laid, server)
        served = await find_server(server.base_url, model)
        yield (
            served,
            Setting(
                runtime=config.default,
                environment=environment,
                journal=journal,
                boot=boot,
                study=config.name,
                boot_s=server.boot_s,
                resolved={name: without_secrets(value) for name, value in server.resolved.items()},
            ),
        )


async def _measure(config: StudyConfig, bench: TrialSession, server: Server) -> None:
    ledger = StudyRecords(config, bench.environment.fingerprint, bench.journal.read().records)
    trials = [Trial(runtime=config.default, workload=workload) for workload in config.workloads]
    errands = [PlannedTrial(trial, ledger.next_occasion(trial), "search", ledger.latest_round) for trial in trials]
    for record in await measure_on(bench, server, errands):
        outcome = record.outcome
        if isinstance(outcome, Failed) and outcome.fault in SERVER_LOST:
            raise TrialFault(outcome.fault, outcome.message, stage=outcome.stage, log_tail=outcome.log_tail)
