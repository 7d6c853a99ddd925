"""From folders to a site, with progress."""

from __future__ import annotations

import sys
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from dsabench.cli.metric_names import require_metrics
from dsabench.cli.show_results import load_records
from dsabench.errors import InputError
from dsabench.reporting.site.build import Built, build_site
from dsabench.reporting.site.extras import has_only_kernels

_MARK = "site.css"
"""What every site has and few other folders."""


def run_report(places: list[Path], folder: Path, metric: str | None, *, force: bool) -> None:
    """Write the site and say where it is.

    Raises:
        InputError: there is no record, no such metric, or the folder is something else's.
        StoreError: the site cannot be written.

    """
    require_metrics(() if metric is None else (metric,))
    _refuse_foreign(folder, force=force)
    of_kernels = [has_only_kernels(place) for place in places]
    found = [one for place, only in zip(places, of_kernels, strict=True) if not only for one in load_records(place)]
    if not found and not any(of_kernels):
        raise InputError(f"{', '.join(map(str, places))}: no record, so there is nothing to report")
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not sys.stderr.isatty()) as progress:
        task = progress.add_task("pages", total=None)
        built: Built = build_site(
            found, places, folder, metric, lambda done, total: progress.update(task, completed=done, total=total)
        )
    print(f"{built.index}: {built.studies} studies, {built.pages:,} pages")


def _refuse_foreign(folder: Path, *, force: bool) -> None:
    """Let a site be written where nothing or an earlier one is.

    Raises:
        InputError: a file stands there, or a folder of other things.

    """
    if folder.exists() and not folder.is_dir():
        raise InputError(f"--out {folder}: a file, not a folder")
    if force or not folder.is_dir() or (folder / _MARK).is_file():
        return
    if any(folder.iterdir()):
        raise InputError(
            f"--out {folder}: holds files that are no site of dsabench's: name another folder, or add --force to write "
            "beside them"
        )
