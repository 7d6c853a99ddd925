"""From the options of an eval to its score."""

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
from dsabench.evals.ask import Target
from dsabench.evals.conduct import Finished, Setting, conduct
from dsabench.evals.drivers import DRIVERS
from dsabench.evals.drivers.drive import drive
from dsabench.evals.drivers.program import Commission, DriverName, find_program
from dsabench.evals.fetch import differs_from_known, find_data
from dsabench.evals.fit import fit_to
from dsabench.evals.plan import Plan, Wishes, make_plan, with_wishes
from dsabench.evals.published import Beside, beside_published
from dsabench.evals.run import Effort
from dsabench.evals.server import DEFAULT_URL, Served, find_server
from dsabench.machine.environment import collect_environment
from dsabench.model.evals import EvalSpec
from dsabench.model.record import Failed
from dsabench.model.runtime import RuntimeSpec
from dsabench.reporting.eval_page import Asked, write_page
from dsabench.results.journal import Journal
from dsabench.signals import cancel_at_first_signal, ignore_interrupts


@dataclass(frozen=True, slots=True)
class EvalOptions:
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


def run_eval(options: EvalOptions) -> int:
    """Run or resume an eval; returns the exit code."""
    if options.config is not None and options.base_url is not None:
        raise InputError("--config and --base-url name two servers: give one")
    if options.bench and options.config is None:
        raise InputError("--bench measures the workloads of a config: name it with --config")
    spec = load_eval(options.name)
    with_wishes(
        spec, options.wishes, options.model or ""
    )  # an option that does not fit is told before anything is asked
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(cancel_at_first_signal(_run(options, spec), _INTERRUPTED))
    except TrialFault as fault:
        if options.driver is not None:
            raise
        raise TrialFault(
            fault.kind, f"{fault.message}; finished samples are kept: the same command goes on", stage=fault.stage
        ) from fault
    except (KeyboardInterrupt, asyncio.CancelledError):
        ignore_interrupts()
        print(_INTERRUPTED, file=sys.stderr)
        raise typer.Exit(130) from None


_INTERRUPTED = "interrupted; finished samples are kept. The same command goes on."


async def _run(options: EvalOptions, spec: EvalSpec) -> int:
    # A server that is not there is told before a long download begins, and a missing file before a long boot.
    attached = None if options.config is not None else await _attach(options, spec)
    if options.driver is not None:
        return await _drive(options, spec, options.driver, attached)
    data = await find_data(spec, options.data)
    async with _boot(options) if attached is None else nullcontext(attached) as (served, setting):
        target = served.target
        plan = await fit_to(make_plan(spec, options.wishes, target.model, data), served)
        for note in plan.notes:
            options.note(f"note: {note}")
        other_data = options.data is not None and differs_from_known(spec, options.data)
        if other_data:
            options.note(f"note: {options.data} is not the file that the published scores are of (another sha256)")
        finished = await _ask(options, plan, target, setting)
    return _show(options, plan, target, finished, None if setting.has_random_weights else other_data)


async def _drive(
    options: EvalOptions, spec: EvalSpec, driver: DriverName, attached: tuple[Served, Setting] | None
) -> int:
    program = find_program(driver, options.driver_program)
    async with _boot(options) if attached is None else nullcontext(attached) as (served, setting):
        target = served.target
        wished = with_wishes(spec, options.wishes, target.model)
        folder = (options.results / "drivers" / f"{spec.name}-{uuid.uuid4().hex[:12]}").absolute()
        data = None if options.data is None else options.data.absolute()
        commission = Commission(wished, target, program, folder, data)
        errands = DRIVERS[driver](commission)
        options.note(f"{driver} runs; its log: {folder / 'driver.log'}")
        plan, finished = await drive(driver, commission, errands, setting)
    return _show(options, plan, target, finished, None if setting.has_random_weights else data is not None)


def _show(options: EvalOptions, plan: Plan, target: Target, finished: Finished, other_data: bool | None) -> int:
    """Print the result. `other_data` says whether the data differs from the published runs'; None compares with none."""
    if isinstance(finished.record.outcome, Failed):
        if options.as_json:
            print(json.dumps(result_object(plan, target, finished, ())))
        raise TrialFault("request_errors", finished.record.outcome.message, stage="load")
    metrics = finished.record.outcome.metrics if finished.record.outcome.kind == "scored" else {}
    beside: tuple[Beside, ...] = ()
    if other_data is not None:
        beside = beside_published(plan.spec, plan.task, target.model, metrics, other_data=other_data)
    else:
        options.note("note: the model has random weights: its score says nothing and is compared with no published one")
    page = None
    if options.html:
        server = target.base_url if options.config is None else f"{options.config} (booted for this eval)"
        asked = Asked(target.model, server, finished.record.started_at)
        page = write_page(finished.samples.with_suffix(".html"), plan.task, finished.tally, asked)
    if options.as_json:
        for warning in finished.record.outcome.warnings if finished.record.outcome.kind == "scored" else ():
            options.note(f"warning: {warning}")
        print(json.dumps(result_object(plan, target, finished, beside)))
    else:
        print_eval(Console(), plan, finished, beside, page)
    return 0


async def _ask(options: EvalOptions, plan: Plan, target: Target, setting: Setting) -> Finished:
    with make_eval_progress(options.console, plan.task.name) as progress:
        effort = Effort(
            concurrency=options.parallel or plan.spec.concurrency,
            timeout_s=options.timeout_s or plan.spec.request_timeout_s,
            retries=options.retries,
            on_progress=progress.show,
        )
        return await conduct(plan, target, setting, effort, progress.resumed)


async def _attach(options: EvalOptions, spec: EvalSpec) -> tuple[Served, Setting]:
    """A server that runs already."""
    served = await find_server(options.base_url or DEFAULT_URL, options.model)
    return served, Setting(
        runtime=RuntimeSpec(kind="external", model=served.target.model, base_url=served.target.base_url),
        environment=await collect_environment(served.identity),
        journal=Journal(options.results),
        boot=str(uuid.uuid4()),
        study=f"eval-{spec.name}",
        resolved=served.info,
    )


def _boot(options: EvalOptions) -> AbstractAsyncContextManager[tuple[Served, Setting]]:
    """The default setting of a config, booted for this eval."""
    # A seventh of the start that a server which runs already does not need.
    from dsabench.cli.progress import LineProgress
    from dsabench.config.load import load_study
    from dsabench.study.eval_boot import boot_for_eval

    assert options.config is not None
    config = load_study(options.config)
    observer = LineProgress(options.console, config.objective.metric)
    return boot_for_eval(config, options.model, options.results, bench=options.bench, observer=observer)
