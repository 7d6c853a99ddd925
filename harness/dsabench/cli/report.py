"""`dsabench report`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def report(
    results: Annotated[
        list[Path] | None, typer.Option(help="A folder of results, searched below, or one journal; may be repeated.")
    ] = None,
    out: Annotated[Path, typer.Option("--out", help="Folder of the site; its index.html is the overview.")] = Path(
        "reports/local"
    ),
    metric: Annotated[
        str | None, typer.Option(help="Rank settings by this; otherwise by the objective of each study's config.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Write into a folder that holds other files too.")] = False,
) -> None:
    """A static site of what was measured: it opens from disk, asks no network, and every number leads to its record."""
    from dsabench.cli.run_report import run_report

    run_report(results or [Path("results")], out, metric, force=force)
