"""`dsabench results list|show|plot|query|export|merge|copy`."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Literal

import typer

from dsabench.cli.format import parse_duration_s

app = typer.Typer(help="Look at what was measured.", no_args_is_help=True)

_LIMIT = 40

Results = Annotated[Path, typer.Option(help="A folder of results, searched below, or one journal.")]


def _since(text: str) -> datetime:
    """Parse a date, a time, or an age."""
    with suppress(ValueError):
        found = datetime.fromisoformat(text)
        return found if found.tzinfo else found.astimezone()
    return datetime.now(UTC) - timedelta(seconds=parse_duration_s(text))


@app.command("list")
def list_(
    results: Results = Path("results"),
    study: Annotated[str | None, typer.Option(help="Only this study.")] = None,
    since: Annotated[
        datetime | None,
        typer.Option(parser=_since, metavar="WHEN", help="Only records since a date, or so long ago: 90m, 12h, 7d."),
    ] = None,
    failed: Annotated[bool, typer.Option("--failed", help="Only trials that failed.")] = False,
    limit: Annotated[
        int | None, typer.Option(min=1, help="The newest N records.", show_default=f"{_LIMIT}; all with --json")
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="All records, including committed ones.")] = False,
    json_: Annotated[bool, typer.Option("--json", help="One JSON object per line, the newest first.")] = False,
) -> None:
    """List one line per record, the newest study first: setting, workload, outcome."""
    from dsabench.cli.show_results import ListOptions, list_records

    limited = limit if limit is not None or everything or json_ else _LIMIT
    list_records(results, ListOptions(study, since, failed, limited, everything), as_json=json_)


@app.command("show")
def show(
    record: Annotated[
        str, typer.Argument(help="First characters of a trial's id, with :OCCASION if it has several; or `latest`.")
    ],
    results: Results = Path("results"),
    json_: Annotated[bool, typer.Option("--json", help="The record as JSON.")] = False,
) -> None:
    """Show everything about one record: setting, environment, metrics with n, or the failure with its log."""
    from dsabench.cli.show_results import show_record

    show_record(results, record, as_json=json_)


@app.command("plot")
def plot(
    what: Annotated[str, typer.Argument(help="A record (as for show), or a Parquet file of request samples.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="FILE.svg.")],
    results: Results = Path("results"),
) -> None:
    """Draw TTFT, gaps between tokens, requests in flight and throughput over the time of one load test."""
    from dsabench.cli.show_results import plot_samples

    plot_samples(what, output, results)


Places = Annotated[
    list[Path] | None, typer.Option("--results", help="A folder of results or a journal; may be repeated.")
]


@app.command("query")
def query(
    sql: Annotated[str, typer.Argument(help="One SELECT over the tables records, metrics and samples.")],
    results: Places = None,
    form: Annotated[
        Literal["table", "csv", "json"], typer.Option("--format", help="json: an object per line.")
    ] = "table",
) -> None:
    """Run SQL (DuckDB) on journals and their samples: `SELECT workload, avg(value) FROM metrics WHERE …`."""
    from dsabench.cli.query_results import run_query

    run_query(results or [Path("results")], sql, form)


@app.command("export")
def export(
    output: Annotated[Path, typer.Argument(help="FILE.csv or FILE.parquet.")],
    results: Places = None,
    table: Annotated[
        Literal["records", "metrics", "samples"],
        typer.Option(help="records (one row each, a column per knob and metric), metrics or samples."),
    ] = "records",
) -> None:
    """Write all records as one table, for a spreadsheet or a notebook."""
    from dsabench.cli.query_results import run_export

    run_export(results or [Path("results")], table, output)


@app.command("merge")
def merge(
    sources: Annotated[
        list[str],
        typer.Argument(help="Folders of results, journals, or fsspec paths: s3://bucket/study.", show_default=False),
    ],
    into: Annotated[Path, typer.Option(help="Folder that gets their records; it may have some already.")],
    json_: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Join the journals of several machines, with their samples. A second time adds nothing."""
    from dsabench.cli.show_results import merge_results

    merge_results(sources, into, as_json=json_)


@app.command("copy")
def copy(
    results: Annotated[Path, typer.Argument(help="A folder of results.", show_default=False)],
    to: Annotated[str, typer.Option(metavar="URL", help="An fsspec path: s3://bucket/study, gs://, sftp:// …")],
) -> None:
    """Copy a journal and its samples to object storage or another machine. A second time sends what is new."""
    from dsabench.cli.show_results import copy_results

    copy_results(results, to)
