"""The findings of `doctor`, for people and for programs."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.text import Text

from dsabench.machine.checks import Finding

_STYLE = {"ok": "green", "warning": "yellow", "problem": "bold red"}


@contextmanager
def tell_progress(*, quiet: bool) -> Iterator[Callable[[str], None]]:
    """Called with what is looked at next: on a terminal a line says so, and for how long by now. On stderr."""
    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
    console, shown = Console(stderr=True), sys.stderr.isatty() and not quiet
    with Progress(*columns, console=console, transient=True, disable=not shown) as progress:
        task = progress.add_task("", total=None)
        yield lambda what: progress.reset(task, description=f"looking at: {what}")


def print_findings(findings: Sequence[Finding]) -> None:
    """One line each, the command that mends it below."""
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


def findings_json(findings: Sequence[Finding]) -> str:
    """`{findings: [{check, verdict, line, fix}], problems, warnings}`."""
    counts = _counts(findings)
    listed = [finding.model_dump() for finding in findings]
    return json.dumps({"findings": listed, "problems": counts["problem"], "warnings": counts["warning"]})


def _counts(findings: Sequence[Finding]) -> Counter[str]:
    return Counter(finding.verdict for finding in findings)
