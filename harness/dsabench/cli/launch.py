"""`dsabench launch CONFIG`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dsabench.cli.emit import SchedulerForm
from dsabench.cli.options import Executor, LaunchArgs, RayAddress, RayLabels, ray_cluster


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
    executor: Annotated[
        Executor, typer.Option(help="Where it runs: here, or on the nodes of a Ray cluster.")
    ] = "local",
    ray_address: RayAddress = None,
    ray_label: RayLabels = None,
    emit: Annotated[
        SchedulerForm | None,
        typer.Option(
            help="Print the files of a scheduler that runs it, in place of commands; start nothing.", show_default=False
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Write these files there.", show_default="printed")
    ] = None,
    image: Annotated[
        str | None, typer.Option(help="Their container image.", show_default="of config and version")
    ] = None,
) -> None:
    """Write the exact commands of a deployment, one per node and role, or run it in the foreground.

    Settings that the version lacks, drops or overwrites are named on stderr; illegal ones end with exit code 2 and
    the id of the rule.
    """
    from dsabench.cli.run_launch import EmittedDeployment, LaunchOptions, emit_deployment, launch_on_ray, run_launch
    from dsabench.errors import InputError

    cluster = ray_cluster(executor, ray_address, ray_label)
    options = LaunchOptions(runtime_version, dry_run=dry_run or emit is not None, as_json=json_, logs=logs)
    if emit is not None:
        if json_:
            raise InputError("--json and --emit exclude each other: files of a scheduler have their own form")
        raise typer.Exit(emit_deployment(config, options, EmittedDeployment(emit, out, image), launch_arg or ()))
    if out is not None or image is not None:
        raise InputError("--out and --image are for --emit")
    if cluster is not None:
        raise typer.Exit(launch_on_ray(config, options, launch_arg or (), cluster))
    raise typer.Exit(run_launch(config, options, launch_arg or ()))
