"""`dsabench report`: a site of what was measured."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dsabench.errors import InputError

_MARK = "site.css"
"""A file that every site has and few other folders."""


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
    one_file: Annotated[
        Path | None, typer.Option(help="Write the overview and all studies as one HTML file too, to attach or commit.")
    ] = None,
    serve: Annotated[
        bool, typer.Option("--serve", help="Serve the site on this machine, and rebuild it when records come.")
    ] = False,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port for --serve; 0 takes a free one.")] = 8000,
) -> None:
    """Write a static site of the results. It opens from disk without a network, and every number links to its record."""
    from dsabench.model.metrics import require_metrics

    places = results or [Path("results")]
    require_metrics(() if metric is None else (metric,))
    _refuse_foreign(out, force=force)
    if serve and one_file is not None:
        raise InputError("--one-file is written once; it goes without --serve")
    if not serve:
        _build(places, out, metric)
        if one_file is not None:
            from dsabench.reporting.site.one_file import write_one_file

            write_one_file(out, one_file)
            print(one_file)
        return
    from dsabench.cli.serve_site import serve_site
    from dsabench.signals import stop_at_any_signal

    stop_at_any_signal()
    serve_site(out, port, places, lambda: _build(places, out, metric))


def _build(places: list[Path], out: Path, metric: str | None) -> None:
    from dsabench.cli.progress import counting
    from dsabench.cli.show_results import load_records
    from dsabench.reporting.site.build import build_site
    from dsabench.reporting.site.extras import has_only_kernels

    of_kernels = [has_only_kernels(place) for place in places]
    found = [one for place, only in zip(places, of_kernels, strict=True) if not only for one in load_records(place)]
    if not found and not any(of_kernels):
        raise InputError(f"{', '.join(map(str, places))}: no record, so there is nothing to report")
    with counting("pages") as told:
        built = build_site(found, places, out, metric, told)
    print(f"{built.index}: {built.studies} studies, {built.pages:,} pages", flush=True)


def _refuse_foreign(folder: Path, *, force: bool) -> None:
    """Allow only an empty folder, or one with an earlier site.

    Raises:
        InputError: it is a file, or a folder with other content.

    """
    if folder.exists() and not folder.is_dir():
        raise InputError(f"--out {folder}: a file, not a folder")
    if force or not folder.is_dir() or (folder / _MARK).is_file():
        return
    if any(folder.iterdir()):
        raise InputError(
            f"--out {folder}: holds files that are not a dsabench site: use another folder, or --force to write there anyway"
        )
