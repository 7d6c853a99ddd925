"""From folders to a site, with progress."""

from __future__ import annotations

import sys
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from dsabench.cli.metric_names import require_metrics
from dsabench.cli.show_results import load_records
from dsabench.reporting.site.build import Built, build_site
from dsabench.reporting.site.extras import has_only_kernels


def run_report(places: list[Path], folder: Path, metric: str | None) -> None:
    """Write the site and say where it is.

    Raises:
        InputError: there is no record, or no such metric.
        StoreError: the site cannot be written.

    """
    require_metrics(() if metric is None else (metric,))
    found = [one for place in places if not has_only_kernels(place) for one in load_records(place)]
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not sys.stderr.isatty()) as progress:
        task = progress.add_task("pages", total=None)
        built: Built = build_site(
            found, places, folder, metric, lambda done, total: progress.update(task, completed=done, total=total)
        )
    print(f"{built.index}: {built.studies} studies, {built.pages:,} pages")
