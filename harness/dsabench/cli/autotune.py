"""`dsabench autotune CONFIG`: sweep, gate, tune, prove and emit in one run."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dsabench.cli.format import parse_duration_s
from dsabench.cli.options import LaunchEnv, flags_of

if TYPE_CHECKING:
    from dsabench.autotune.job import AutotuneObserver, Job
    from dsabench.autotune.price import StagePrice
    from dsabench.autotune.workflow import AutotuneResult

_STYLE = {"done": "green", "refused": "yellow", "open": "yellow", "skipped": "dim", "failed": "bold red"}


@dataclass(frozen=True, slots=True)
class AutotuneOptions:
    """The options of `autotune`."""

    config: Annotated[str, typer.Argument(help="A config: a YAML file, or a name in configs/.")]
    results: Annotated[
        Path | None,
        typer.Option(help="Folder of the sweep's journal; the rest lies below.", show_default="results/NAME"),
    ] = None
    tree: Annotated[
        Path | None,
        typer.Option(
            help="A git checkout of sglang (or of dsabench, for reference tables) for the pull request.",
            show_default=False,
        ),
    ] = None
    only: Annotated[list[str] | None, typer.Option(help="Run this stage; may be repeated.", metavar="STAGE")] = None
    skip: Annotated[list[str] | None, typer.Option(help="Leave this stage out; may be repeated.", metavar="STAGE")] = (
        None
    )
    until: Annotated[str | None, typer.Option(help="End after this stage.", metavar="STAGE")] = None
    budget: Annotated[
        float | None,
        typer.Option(
            parser=parse_duration_s,
            metavar="DURATION",
            help="Time limit of the sweep; tunes have their own in the config.",
        ),
    ] = None
    lanes: Annotated[int, typer.Option(min=1, max=64, help="Servers at the same time in sweep and tunes.")] = 1
    launch_env: LaunchEnv = None
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Price every stage; start nothing.")] = False
    json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout; progress on stderr.")] = False

    @property
    def command(self) -> str:
        """The command that repeats the run, without its choice of stages."""
        return shlex.join(
            ["dsabench", "autotune", self.config, *flags_of(self, ("results", "tree", "budget", "lanes", "launch_env"))]
        )

    def job(self, observer: AutotuneObserver) -> Job:
        """The job of the config.

        Raises:
            InputError: there is no such config, or it has a mistake.

        """
        from dsabench.autotune.job import Job
        from dsabench.study.study import Study

        study = Study.from_config(
            self.config, results=self.results, lanes=self.lanes, time_s=self.budget, launch_env=self.launch_env or ()
        )
        return Job(study.config, study.folder, self.command, self.config, observer, self.lanes, self.tree)


def autotune(options: AutotuneOptions) -> int:
    """Check the machine, sweep, gate, tune the tables, prove them at the server, and write report and pull request.

    Stages: doctor, plan, sweep, flashmla-auto, mha-threshold, hisparse, mtp, proof, report, pr. Each continues where an earlier run
    stopped; a finished one measures nothing. The tunes are those of the config's key `autotune` and start from the sweep's winner.

    Exit 1 if the gate refuses the best setting, 3 if a stage failed.
    """
    from dsabench.autotune.stages import choose_stages
    from dsabench.cli.autotune_progress import AutotuneProgress
    from dsabench.cli.options import resume_hint

    wanted = choose_stages(options.only or (), options.skip or (), options.until)
    job = options.job(AutotuneProgress(wanted))
    if options.dry_run:
        from dsabench.autotune.price import plan_stages

        prices = plan_stages(job, wanted)
        if options.json:
            print(json.dumps({"stages": [asdict(one) for one in prices]}))
        else:
            _print_prices(prices)
        return 2 if any(one.trouble for one in prices) else 0
    from dsabench.autotune.workflow import as_json
    from dsabench.autotune.workflow import autotune as run

    with resume_hint(lambda: options.command):
        result = run(job, wanted)
    if options.json:
        print(as_json(result))
    else:
        _print_result(result)
    return result.exit_code


def _print_prices(prices: Sequence[StagePrice]) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    from dsabench.reporting.numbers import show_dollars, show_duration

    console = Console()
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    dollars = [one.dollars for one in prices if one.dollars is not None]
    columns = ["stage", "boots", "time", "GPU-hours", *(["price"] if dollars else []), "pace"]
    for column in columns:
        table.add_column(column, justify="left" if column in ("stage", "pace") else "right")
    for one in prices:
        pace = "measured" if one.measured_pace else "assumed"
        gpus = "–" if one.gpu_hours is None else f"{one.gpu_hours:.1f}"
        seconds = show_duration(one.seconds) if one.seconds else "–"
        price = [show_dollars(one.dollars)] if dollars else []
        table.add_row(one.stage, str(one.boots or "–"), seconds, gpus, *price, "–" if one.trouble else pace)
    hours = [one.gpu_hours for one in prices if one.gpu_hours is not None]
    total = show_duration(sum(one.seconds for one in prices))
    table.add_section()
    price = [show_dollars(sum(dollars))] if dollars else []
    boots = str(sum(one.boots for one in prices))
    table.add_row("together", boots, total, f"{sum(hours):.1f}" if hours else "–", *price, "")
    console.print(table)
    for one in prices:
        if one.notes or one.trouble is not None:
            console.print(one.stage, style="bold", highlight=False)
        for line in one.notes:
            console.print(Padding(Text(line), (0, 0, 0, 2)))
        if one.trouble is not None:
            console.print(Padding(Text(f"cannot run: {one.trouble}", style="bold red"), (0, 0, 0, 2)))
    if any(not one.measured_pace for one in prices):
        console.print("\nassumed: nothing of the stage is measured yet; docs/sweep.md, What it costs", highlight=False)


def _print_result(result: AutotuneResult) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from dsabench.reporting.numbers import show_duration

    console = Console()
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for column in ("stage", "state", "time", "outcome"):
        table.add_column(column, justify="right" if column == "time" else "left", overflow="fold")
    for one in result.stages:
        table.add_row(one.name, Text(one.state, style=_STYLE[one.state]), show_duration(one.seconds), Text(one.says))
    console.print(table)
    for path in result.tables:
        console.print(f"table: {path}", markup=False, highlight=False, soft_wrap=True)
    if result.pull_request is not None:
        console.print(f"pull request: {result.pull_request}", markup=False, highlight=False, soft_wrap=True)
    console.print(f"page: {result.page}", markup=False, highlight=False, soft_wrap=True)
    if not any(one.measured or one.state == "failed" for one in result.stages):
        console.print("Nothing was measured: everything is recorded already.", highlight=False)
    for step in result.next_steps:
        reason, _, command = step.partition(": ")
        console.print(f"Next, {reason}:\n  {command}", markup=False, highlight=False, soft_wrap=True)
