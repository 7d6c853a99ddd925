"""From the request of an eval to its score."""

from __future__ import annotations

import asyncio
import json
import sys
import uuid
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path

import typer
import uvloop
from rich.console import Console

from dsabench.cli.eval_progress import make_eval_progress
from dsabench.cli.show_eval import print_eval, result_object
from dsabench.config.load import load_eval
from dsabench.errors import InputError, TrialFault
from dsabench.evals.client import Target
from dsabench.evals.conduct import Finished, Setting, conduct
from dsabench.evals.drivers import DRIVERS
from dsabench.evals.drivers.drive import drive
from dsabench.evals.drivers.program import Commission, DriverName, find_program
from dsabench.evals.fetch import differs_from_known, find_data
from dsabench.evals.fit import fit_to
from dsabench.evals.plan import Plan, Wishes, make_plan, with_wishes
from dsabench.evals.published import beside_published
from dsabench.evals.run import Effort
from dsabench.evals.scorers import SLOW
from dsabench.evals.scorers.mathematics import require_math_verify
from dsabench.evals.server import DEFAULT_URL, Served, find_server
from dsabench.machine.environment import collect_environment
from dsabench.model.evals import EvalSpec
from dsabench.model.record import Failed
from dsabench.model.runtime import RuntimeSpec
from dsabench.reporting.eval_page import Asked, write_page
from dsabench.results.journal import Journal
from dsabench.signals import cancel_at_first_signal, ignore_interrupts


@dataclass(frozen=True, slots=True)
class Request:
    """The command line of an eval."""

    name: str
    base_url: str | None
    config: str | None
    bench: bool
    model: str | None
    data: Path | None
    wishes: Wishes
    parallel: int | None
    timeout_s: float | None
    retries: int
    driver: DriverName | None
    driver_program: Path | None
    results: Path
    html: bool
    as_json: bool
    console: Console = field(default_factory=lambda: Console(stderr=True))

    def note(self, text: str) -> None:
        """One line on stderr."""
        self.console.print(text, markup=False, highlight=False, soft_wrap=True)


def run_eval(request: Request) -> int:
    """Run or resume an eval; returns the exit code."""
    if request.config is not None and request.base_url is not None:
        raise InputError("--config and --base-url name two servers: give one")
    if request.bench and request.config is None:
        raise InputError("--bench measures the workloads of a config: name it with --config")
    spec = load_eval(request.name)
    with_wishes(
        spec, request.wishes, request.model or ""
    )  # an option that does not fit is told before anything is asked
    if spec.scorer in SLOW and request.driver is None:
        require_math_verify()
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(cancel_at_first_signal(_run(request, spec), _INTERRUPTED))
    except TrialFault as fault:
        if request.driver is not None:
            raise
        raise TrialFault(
            fault.kind, f"{fault.message}; finished samples are kept: the same command goes on", stage=fault.stage
        ) from fault
    except (KeyboardInterrupt, asyncio.CancelledError):
        ignore_interrupts()
        print(_INTERRUPTED, file=sys.stderr)
        raise typer.Exit(130) from None


_INTERRUPTED = "interrupted; finished samples are kept. The same command goes on."


async def _run(request: Request, spec: EvalSpec) -> int:
    # A server that is not there is told before a long download begins, and a missing file before a long boot.
    attached = None if request.config is not None else await _attach(request, spec)
    if request.driver is not None:
        return await _drive(request, spec, request.driver, attached)
    data = await find_data(spec, request.data)
    async with _boot(request) if attached is None else nullcontext(attached) as (served, setting):
        target = served.target
        plan = await fit_to(make_plan(spec, request.wishes, target.model, data), served)
        for note in plan.notes:
            request.note(f"note: {note}")
        other_data = request.data is not None and differs_from_known(spec, request.data)
        if other_data:
            request.note(f"note: {request.data} is not the file that the published scores are of (another sha256)")
        finished = await _ask(request, plan, target, setting)
    return _show(request, plan, target, finished, other_data=other_data)


async def _drive(request: Request, spec: EvalSpec, driver: DriverName, attached: tuple[Served, Setting] | None) -> int:
    program = find_program(driver, request.driver_program)
    async with _boot(request) if attached is None else nullcontext(attached) as (served, setting):
        target = served.target
        wished = with_wishes(spec, request.wishes, target.model)
        folder = (request.results / "drivers" / f"{spec.name}-{uuid.uuid4().hex[:12]}").absolute()
        data = None if request.data is None else request.data.absolute()
        commission = Commission(wished, target, program, folder, data)
        errands = DRIVERS[driver](commission)
        request.note(f"{driver} runs; its log: {folder / 'driver.log'}")
        plan, finished = await drive(driver, commission, errands, setting)
    return _show(request, plan, target, finished, other_data=data is not None)


def _show(request: Request, plan: Plan, target: Target, finished: Finished, *, other_data: bool) -> int:
    if isinstance(finished.record.outcome, Failed):
        if request.as_json:
            print(json.dumps(result_object(plan, target, finished, ())))
        raise TrialFault("request_errors", finished.record.outcome.message, stage="load")
    metrics = finished.record.outcome.metrics if finished.record.outcome.kind == "scored" else {}
    beside = beside_published(plan.spec, plan.task, target.model, metrics, other_data=other_data)
    page = None
    if request.html:
        server = target.base_url if request.config is None else f"{request.config} (booted for this eval)"
        asked = Asked(target.model, server, finished.record.started_at)
        page = write_page(finished.samples.with_suffix(".html"), plan.task, finished.tally, asked)
    if request.as_json:
        for warning in finished.record.outcome.warnings if finished.record.outcome.kind == "scored" else ():
            request.note(f"warning: {warning}")
        print(json.dumps(result_object(plan, target, finished, beside)))
    else:
        print_eval(Console(), plan, finished, beside, page)
    return 0


async def _ask(request: Request, plan: Plan, target: Target, setting: Setting) -> Finished:
    with make_eval_progress(request.console, plan.task.name) as progress:
        effort = Effort(
            concurrency=request.parallel or plan.spec.concurrency,
            timeout_s=request.timeout_s or plan.spec.request_timeout_s,
            retries=request.retries,
            on_progress=progress.show,
        )
        return await conduct(plan, target, setting, effort, progress.resumed)


async def _attach(request: Request, spec: EvalSpec) -> tuple[Served, Setting]:
    """A server that runs already."""
    served = await find_server(request.base_url or DEFAULT_URL, request.model)
    return served, Setting(
        runtime=RuntimeSpec(kind="external", model=served.target.model, base_url=served.target.base_url),
        environment=await collect_environment(served.identity),
        journal=Journal(request.results),
        boot=str(uuid.uuid4()),
        study=f"eval-{spec.name}",
        resolved=served.info,
    )


def _boot(request: Request) -> AbstractAsyncContextManager[tuple[Served, Setting]]:
    """The default setting of a config, booted for this eval."""
    # A seventh of the start that a server which runs already does not need.
    from dsabench.cli.progress import LineProgress
    from dsabench.config.load import load_study
    from dsabench.study.eval_boot import boot_for_eval

    assert request.config is not None
    config = load_study(request.config)
    observer = LineProgress(request.console, config.objective.metric)
    return boot_for_eval(config, request.model, request.results, bench=request.bench, observer=observer)
