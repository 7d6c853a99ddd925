"""`dsabench doctor`: what is wrong with a machine, an installed sglang or a server."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dsabench.cli.format import parse_duration_s

if TYPE_CHECKING:
    from dsabench.machine.checks import Finding
    from dsabench.model.bottleneck import Bottleneck

_STYLE = {"ok": "green", "warning": "yellow", "problem": "bold red"}


def doctor(
    config: Annotated[
        str | None, typer.Argument(help="A YAML file, or the name of one in configs/: what it starts is looked at.")
    ] = None,
    python: Annotated[Path | None, typer.Option(help="Interpreter that has sglang; wins over CONFIG's.")] = None,
    base_url: Annotated[str | None, typer.Option(help="A running server to try out: http://HOST:PORT.")] = None,
    api_key_env: Annotated[str | None, typer.Option(help="Name of the variable that holds the server's key.")] = None,
    results: Annotated[Path, typer.Option(help="Where records will lie.")] = Path("results"),
    timeout: Annotated[float, typer.Option(min=0.1, help="Seconds for each answer of the server.")] = 120.0,
    question_timeout: Annotated[
        float, typer.Option(min=0.1, help="Seconds for each question about thinking and tool calls.")
    ] = 60.0,
    watch: Annotated[
        float | None,
        typer.Option(
            parser=parse_duration_s,
            metavar="DURATION",
            help="Only say what limits the server under its present load, after watching its metrics so long (60s).",
        ),
    ] = None,
    json_: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> None:
    """Find problems of this machine, an installed sglang or a running server, and say how to solve them.

    Exit 0 without a problem (warnings may remain), 1 with one, 2 if the command line is wrong.
    """
    from dsabench.config.load import load_launch
    from dsabench.doctor.bottleneck import finding_of
    from dsabench.doctor.run import DoctorOptions, run_checks, run_watch
    from dsabench.model.bottleneck import Bottleneck
    from dsabench.signals import run_loop

    asked = DoctorOptions(
        runtime=None if config is None else load_launch(config),
        python=python,
        base_url=base_url,
        api_key_env=api_key_env,
        results=results,
        timeout_s=timeout,
        question_timeout_s=question_timeout,
    )
    bottleneck = None
    with _told_progress(quiet=json_) as tell:
        if watch is None:
            findings = run_loop(run_checks(asked, tell))
        else:
            found = run_loop(run_watch(asked, watch, tell))
            bottleneck = found if isinstance(found, Bottleneck) else None
            findings = [finding_of(found) if isinstance(found, Bottleneck) else found]
    if json_:
        print(_as_json(findings, bottleneck))
    else:
        _print(findings)
    raise typer.Exit(1 if any(finding.verdict == "problem" for finding in findings) else 0)


@contextmanager
def _told_progress(*, quiet: bool) -> Iterator[Callable[[str], None]]:
    """Yield a function that shows on stderr what is being checked, and for how long. It shows nothing outside a
    terminal.
    """
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
    console, shown = Console(stderr=True), sys.stderr.isatty() and not quiet
    with Progress(*columns, console=console, transient=True, disable=not shown) as progress:
        task = progress.add_task("", total=None)
        yield lambda what: progress.reset(task, description=f"looking at: {what}")


def _print(findings: Sequence[Finding]) -> None:
    """Print one line per check, and below a problem the command that solves it."""
    from rich.console import Console
    from rich.text import Text

    console = Console()
    width = max(len(finding.check) for finding in findings)
    for finding in findings:
        line = Text(f"{finding.verdict:<8}", style=_STYLE[finding.verdict])
        line.append(f"{finding.check:<{width}}  {finding.line}", style="default")
        console.print(line, soft_wrap=True)
        if finding.fix is not None:
            console.print(Text(f"{'':<8}{'':<{width}}  → {finding.fix}", style="dim"), soft_wrap=True)
    counts = _counts(findings)
    told = (f"{counts[word]} {word}{'' if counts[word] == 1 else 's'}" for word in ("problem", "warning"))
    console.print(f"{len(findings)} checks: {', '.join(told)}", highlight=False)


def _as_json(findings: Sequence[Finding], bottleneck: Bottleneck | None) -> str:
    """`{findings: [{check, verdict, line, fix}], problems, warnings}`; with `--watch` also `bottleneck`."""
    counts = _counts(findings)
    listed = [finding.model_dump() for finding in findings]
    told = {"findings": listed, "problems": counts["problem"], "warnings": counts["warning"]}
    return json.dumps(told if bottleneck is None else {**told, "bottleneck": bottleneck.model_dump()})


def _counts(findings: Sequence[Finding]) -> Counter[str]:
    return Counter(finding.verdict for finding in findings)
