"""From the request of a sweep to its result: resume, measure, show."""

from __future__ import annotations

import asyncio
import shlex
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType

import typer
from rich.console import Console

from dsabench.cli.gate import gate_of
from dsabench.cli.interrupts import end_at_any_signal, ignore_interrupts
from dsabench.cli.outlook import identity_for_plan, outlook_of
from dsabench.cli.progress import make_progress
from dsabench.cli.run_lanes import LaneOrder, measure_in_lanes
from dsabench.cli.show_plan import SweepPlan, print_plan
from dsabench.cli.show_sweep import print_result, result_json
from dsabench.config.load import load_sweep
from dsabench.config.specs import SweepConfig
from dsabench.errors import InputError
from dsabench.model.refusal import Refuse
from dsabench.model.runtime import Environment
from dsabench.probes.environment import collect_environment
from dsabench.reporting.sweep_plot import draw_sweep
from dsabench.runtimes.choose import make_runtime
from dsabench.runtimes.cores import lease_cores
from dsabench.runtimes.protocol import Runtime
from dsabench.search.budget import Purse
from dsabench.search.forecast import Forecast, make_forecast
from dsabench.search.ledger import Ledger
from dsabench.search.loop import Result, Sweep, conclude, has_work
from dsabench.search.objective import refuse_unprovable
from dsabench.search.refused import require_legal_default
from dsabench.search.space import require_some
from dsabench.store.claim import claim
from dsabench.store.journal import Journal
from dsabench.trial import Bench


@dataclass(frozen=True, slots=True)
class Request:
    """The command line of a sweep."""

    config: str
    results: Path | None
    max_trials: int | None
    max_boots: int | None
    time_s: float | None
    dry_run: bool
    again: bool
    as_json: bool
    verb: tuple[str, ...] = ("sweep",)
    """The words behind `dsabench` that got here."""
    launch_env: tuple[str, ...] = ()
    """NAME=VALUE each: the same study on another installation, with the same command to the server."""
    lanes: int = 1
    """Boots at once."""

    def apply(self, config: SweepConfig) -> SweepConfig:
        """The config with the command line's limits in place of its own."""
        given = {"max_trials": self.max_trials, "max_boots": self.max_boots, "time_s": self.time_s}
        limits = {name: value for name, value in given.items() if value is not None}
        confirm_boots = config.boots_to_confirm
        if self.max_boots is not None and self.max_boots <= confirm_boots:
            raise InputError(
                f"--max-boots {self.max_boots} leaves no boot for the search: the confirmation takes {confirm_boots} "
                "(budget.confirm_boots a side)"
            )
        limited = config.model_copy(update={"budget": config.budget.model_copy(update=limits)})
        return with_launch_env(limited, self.launch_env)

    def resume_command(self) -> str:
        """What to type to go on: the same command without `--again`, which would start anew."""
        words = ["dsabench", *self.verb, self.config]
        for flag, value in (
            ("--results", self.results),
            ("--max-trials", self.max_trials),
            ("--max-boots", self.max_boots),
            ("--budget", None if self.time_s is None else f"{self.time_s:g}s"),
            ("--lanes", None if self.lanes == 1 else self.lanes),
        ):
            words += [] if value is None else [flag, str(value)]
        for pair in self.launch_env:
            words += ["--launch-env", pair]
        return shlex.join(words + (["--json"] if self.as_json else []))


def with_launch_env(config: SweepConfig, pairs: Sequence[str]) -> SweepConfig:
    """The config with these variables in its runtime's `launch.env`.

    Raises:
        InputError: a pair that is no NAME=VALUE.

    """
    if not pairs:
        return config
    given = dict(_pair(text) for text in pairs)
    launch = config.runtime.launch
    changed = launch.model_copy(update={"env": MappingProxyType({**launch.env, **given})})
    return config.model_copy(update={"runtime": config.runtime.model_copy(update={"launch": changed})})


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name.isidentifier():
        raise InputError("--launch-env: wants NAME=VALUE, such as PYTHONPATH=/opt/sglang")  # the value may be a secret
    return name, value


def run_sweep(request: Request) -> int:
    """Run, resume or only plan a sweep; returns the exit code."""
    config, journal, result = measure(request)
    return 0 if result is None else _finish(request, config, journal, result)


def measure(request: Request, adjusted: SweepConfig | None = None) -> tuple[SweepConfig, Journal, Result | None]:
    """The study (or what was made of it) with what it came to; None where it was only planned."""
    config = request.apply(load_sweep(request.config) if adjusted is None else adjusted)
    refuse_unprovable(config.objective, config.workloads)
    require_some(config.space, config.runtime.base)
    folder = request.results or Path("results") / config.name
    journal = Journal(folder)
    notes = Console(stderr=True)
    reading = journal.read()
    for problem in reading.problems:
        notes.print(f"warning: {problem}", markup=False, highlight=False, soft_wrap=True)
    end_at_any_signal()
    started_s = time.monotonic()
    try:
        if request.lanes > 1:
            order = LaneOrder(request.lanes, request.again, request.dry_run, started_s)
            measure_in_lanes(order, config, journal)
            request = replace(request, again=request.again and request.dry_run)
        result = asyncio.run(_run(request, config, journal, notes, started_s))
        if result is not None and request.lanes > 1:
            result = replace(result, measured_now=len(journal.read().records) - len(reading.records))
    except KeyboardInterrupt:
        ignore_interrupts()
        print(f"interrupted; what is measured is kept. Go on with:\n  {request.resume_command()}", file=sys.stderr)
        raise typer.Exit(130) from None
    return config, journal, result


async def _run(
    request: Request, config: SweepConfig, journal: Journal, notes: Console, started_s: float
) -> Result | None:
    runtime = make_runtime(config.runtime)
    if request.dry_run:
        identity, note = await identity_for_plan(runtime, config)
        if note is not None:
            notes.print(f"note: {note}", markup=False, highlight=False, soft_wrap=True)
    else:
        identity = await runtime.identity()
    environment = await collect_environment(identity)
    if config.runtime.launch.command_prefix:
        line = f"note: records have the hardware of this machine ({environment.host}), wherever command_prefix serves"
        notes.print(line, markup=False, highlight=False, soft_wrap=True)
    outlook = await outlook_of(config, identity)
    require_legal_default(config, outlook.refuse)
    ledger = Ledger(config, environment.fingerprint, journal.read().records)
    round_ = ledger.latest_round + (1 if request.again and ledger.records else 0)
    purse = Purse(config.budget, ledger, round_, started_s, request.lanes)
    if request.dry_run:
        plan = SweepPlan(ledger, purse, make_forecast(purse, outlook.refuse), outlook)
        print_plan(Console(), plan, as_json=request.as_json)
        return None
    with claim(journal.path.parent):
        # Another sweep may have written between the first reading and the claim.
        ledger = Ledger(config, environment.fingerprint, journal.read().records)
        purse = Purse(config.budget, ledger, round_, started_s, request.lanes)
        return await _measure(_Lab(config, runtime, environment, journal, ledger, purse, outlook.refuse), notes)


@dataclass(frozen=True, slots=True)
class _Lab:
    config: SweepConfig
    runtime: Runtime
    environment: Environment
    journal: Journal
    ledger: Ledger
    purse: Purse
    refuse: Refuse


async def _measure(lab: _Lab, notes: Console) -> Result:
    # A gate may be left to run, or its verdict to be read back, where nothing else is.
    if lab.config.gate is None and not has_work(lab.ledger, lab.purse):
        return conclude(lab.ledger, lab.purse, lab.purse.stops_search(), 0)
    forecast: Forecast = make_forecast(lab.purse, lab.refuse)
    metric = lab.config.objective.metric
    say = lambda text: notes.print(text, markup=False, highlight=False, soft_wrap=True)  # noqa: E731
    async with lease_cores(on_wait=say) as cores:
        with make_progress(notes, metric, forecast) as progress:
            bench = Bench(
                study=lab.config.name,
                runtime=lab.runtime,
                environment=lab.environment,
                journal=lab.journal,
                folder=lab.journal.path.parent,
                server_cores=cores.server,
                client_cores=cores.client,
                held_fds=cores.fds,
                ready_timeout_s=lab.config.runtime.ready_timeout_s,
                watch=progress.watch(),
            )
            gate = await gate_of(lab.config, bench, lab.purse.round, say)
            return await Sweep(bench, lab.ledger, lab.purse, progress.step, lab.refuse, gate).run()


def _finish(request: Request, config: SweepConfig, journal: Journal, result: Result) -> int:
    plot = draw_sweep(config, result, journal.path.parent)
    if request.as_json:
        print(result_json(config, journal.path, result, plot))
    else:
        print_result(Console(), config, journal.path, result, plot)
    if result.measured_now == 0 and not request.as_json:
        print(_nothing_done(request, result))
    if result.is_refused:
        return 1
    return 0 if any(record.outcome.kind != "failed" for record in result.records) else 3


def _nothing_done(request: Request, result: Result) -> str:
    """Why a run measured nothing, and what to type for more."""
    again = f"{request.resume_command()} --again"
    if not result.records:
        return f"Nothing was measured: {result.stopped or 'there is nothing to try'}."
    failed = sum(record.outcome.kind == "failed" for record in result.records)
    if failed:
        return (
            f"Nothing to do: all is tried, {failed} trials failed (dsabench results list --failed). Once more: {again}"
        )
    return f"Nothing to do: everything is measured. Measure it once more: {again}"
