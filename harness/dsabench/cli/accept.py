"""`dsabench accept CONFIG`: loads and evals of a machine, beside the published figures."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dsabench.cli.options import LaunchEnv, flags_of

if TYPE_CHECKING:
    from dsabench.study.acceptance import Acceptance, AcceptPrice


@dataclass(frozen=True, slots=True)
class AcceptOptions:
    """The options of `accept`."""

    config: Annotated[str, typer.Argument(help="A config with the key `accept`: a YAML file, or a name in configs/.")]
    results: Annotated[Path | None, typer.Option(help="Folder of the journal.", show_default="results/NAME")] = None
    launch_env: LaunchEnv = None
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Forecast each server; start nothing.")] = False
    json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout; progress on stderr.")] = False

    @property
    def command(self) -> str:
        """The command that goes on."""
        return shlex.join(["dsabench", "accept", self.config, *flags_of(self, ("results", "launch_env"))])


def accept(options: AcceptOptions) -> int:
    """Boot each server of the key `accept` once, measure its loads, ask its evals, and hold both beside published figures.

    Each record is in RESULTS/journal.jsonl as soon as it is measured, each answer as soon as it is given. A second run goes on where the
    first one stopped. The page is RESULTS/accept.md.

    Exit 1 if a score lies below the published one with its whole interval, 3 if something could not be measured.
    """
    from rich.console import Console

    from dsabench.cli.options import resume_hint
    from dsabench.cli.progress import LineProgress
    from dsabench.config.load import load_study
    from dsabench.study.acceptance import accept as run
    from dsabench.study.acceptance import price_acceptance
    from dsabench.study.acceptance_page import answer_of, write_page
    from dsabench.study.study import with_launch_env

    config = load_study(options.config)
    servers = tuple(
        one.model_copy(update={"study": with_launch_env(one.study, options.launch_env or ())}) for one in config.accept
    )
    config = config.model_copy(update={"accept": servers})
    folder = options.results or Path("results") / config.name
    if options.dry_run:
        _print_prices(options, price_acceptance(config, folder))
        return 0
    with resume_hint(lambda: options.command):
        found = run(config, folder, LineProgress(Console(stderr=True), config.objective.metric))
    page = write_page(config.name, options.command, found, folder)
    if options.json:
        print(json.dumps(_facts(found, page)))
    else:
        console = Console()
        _print_result(console, found)
        console.print(answer_of(found), highlight=False, markup=False)
        console.print(f"page: {page}", highlight=False, markup=False, soft_wrap=True)
        if found.missing:
            console.print(f"Go on with:\n  {options.command}", highlight=False, markup=False, soft_wrap=True)
    return 3 if found.missing else 1 if found.below else 0


def _print_prices(options: AcceptOptions, prices: Sequence[AcceptPrice]) -> None:
    if options.json:
        print(json.dumps({"servers": [asdict(one) for one in prices]}))
        return
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    from dsabench.reporting.numbers import show_duration

    console, table = Console(), Table(box=SIMPLE_HEAD, pad_edge=False)
    for column in ("server", "loads", "evals", "time", "GPU-hours"):
        table.add_column(column, justify="left" if column in ("server", "evals") else "right", overflow="fold")
    rows = [(one.server, str(one.loads), ", ".join(one.evals), one.seconds, one.gpu_hours) for one in prices]
    hours = [one.gpu_hours for one in prices if one.gpu_hours is not None]
    total = sum(one.seconds for one in prices)
    for name, loads, evals, seconds, used in rows:
        table.add_row(name, loads, evals or "–", show_duration(seconds), "–" if used is None else f"{used:.1f}")
    table.add_section()
    table.add_row("together", "", "", show_duration(total), f"{sum(hours):.1f}" if hours else "–")
    console.print(table)
    if unknown := [name for one in prices for name in one.open_evals]:
        console.print(f"not in the time: {', '.join(unknown)}", highlight=False)
    console.print("speeds are assumed: docs/sweep.md, What it costs", highlight=False)


def _print_result(console: Any, found: Acceptance) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    from dsabench.reporting.numbers import show_figure, show_percent

    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for column in ("server", "load or eval", "ours", "published", "says"):
        table.add_column(column, justify="right" if column in ("ours", "published") else "left", overflow="fold")
    for server in found.servers:
        for one in server.evals:
            ours = "–" if one.ours is None else f"{one.ours.value:.3f}"
            theirs = "–" if one.score is None else f"{one.score.theirs:.3f}"
            table.add_row(server.name, one.name, ours, theirs, Text(one.says))
        for load in server.loads:
            outcome = None if load.record is None else load.record.outcome
            if outcome is None or outcome.kind != "measured":
                table.add_row(server.name, load.name, "–", "–", Text(load.fault or "not measured"))
                continue
            pair = None
            if load.beside is not None:
                pair = next((one for one in load.beside.figures if one.name == "total_throughput"), None)
            ours = f"{show_figure(outcome.metrics['total_throughput_tok_s'].value)} tok/s"
            theirs = "–" if pair is None or pair.base is None else f"{show_figure(pair.base)} tok/s"
            says = "nothing published" if pair is None else f"{show_percent(pair.change)}, no verdict"
            table.add_row(server.name, load.name, ours, theirs, Text(says))
    console.print(table)


def _facts(found: Acceptance, page: Path) -> dict[str, Any]:
    servers = [
        {
            "name": server.name,
            "evals": [
                {
                    "name": one.name,
                    "score": None if one.ours is None else one.ours.value,
                    "published": None if one.score is None else one.score.theirs,
                    "says": one.says,
                    "differs": [] if one.score is None else list(one.score.differs),
                }
                for one in server.evals
            ],
            "loads": [
                {
                    "name": load.name,
                    "measured": load.record is not None,
                    "fault": load.fault,
                    "beside": None if load.beside is None else load.beside.as_json(),
                }
                for load in server.loads
            ],
        }
        for server in found.servers
    ]
    return {
        "servers": servers,
        "below": list(found.below),
        "missing": list(found.missing),
        "measured": found.measured,
        "page": str(page),
    }
