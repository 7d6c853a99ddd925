"""`dsabench launch CONFIG`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dsabench.cli.options import LaunchArgs


def launch(
    config: Annotated[str, typer.Argument(help="A YAML file, or the name of one in configs/ (recipes/NAME too).")],
    runtime_version: Annotated[
        str | None, typer.Option(help="Write the commands for this sglang instead of the installed one.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the commands; start nothing.")] = False,
    logs: Annotated[
        Path | None, typer.Option(help="Of several processes: keep their logs there.", show_default="gone at the end")
    ] = None,
    json_: Annotated[bool, typer.Option("--json", help="A JSON list of {role, node_rank, argv, env}.")] = False,
    launch_arg: LaunchArgs = None,
) -> None:
    """Write the exact commands of a deployment, one per node and role, or run it in the foreground.

    Settings that the version lacks, drops or overwrites are named on stderr; illegal ones end with exit code 2 and
    the id of the rule.
    """
    from dsabench.cli.run_launch import LaunchOptions, run_launch

    options = LaunchOptions(runtime_version, dry_run=dry_run, as_json=json_, logs=logs)
    raise typer.Exit(run_launch(config, options, launch_arg or ()))
