"""`dsabench launch CONFIG`, and `dsabench launch --hardware H --model M --strategy S`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def launch(
    config: Annotated[
        str | None, typer.Argument(help="A YAML file, or the name of one in configs/ (recipes/NAME too).")
    ] = None,
    runtime_version: Annotated[
        str | None, typer.Option(help="Write the commands for this sglang instead of the installed one.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the commands; start nothing.")] = False,
    logs: Annotated[
        Path | None, typer.Option(help="Of several processes: keep their logs there.", show_default="gone at the end")
    ] = None,
    json_: Annotated[bool, typer.Option("--json", help="A JSON list of {role, node_rank, argv, env}.")] = False,
    hardware: Annotated[str | None, typer.Option(help="Without CONFIG: h200, b200, mi300x or mi355x.")] = None,
    model: Annotated[str | None, typer.Option(help="Without CONFIG: v3.2, v3.2-exp, v3.2-nvfp4, glm-5, …")] = None,
    strategy: Annotated[str | None, typer.Option(help="Without CONFIG: tp, with dp, ep, mtp behind commas.")] = None,
    launch_arg: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME[=VALUE]", help="Set an argument of sglang that is no knob, such as hicache_ratio=2."
        ),
    ] = None,
    reasoning_parser: Annotated[
        bool, typer.Option("--reasoning-parser", help="Without CONFIG: separate the thinking.")
    ] = False,
    tool_call_parser: Annotated[
        bool, typer.Option("--tool-call-parser", help="Without CONFIG: parse tool calls.")
    ] = False,
) -> None:
    """Write the exact commands of a deployment, one per node and role, or run it in the foreground.

    Settings that the version lacks, drops or overwrites are named on stderr; illegal ones end with exit code 2 and
    the id of the rule.
    """
    from dsabench.cli.run_launch import LaunchOptions, run_launch

    options = LaunchOptions(
        config=config,
        runtime_version=runtime_version,
        dry_run=dry_run,
        as_json=json_,
        logs=logs,
        hardware=hardware,
        model=model,
        strategy=strategy,
        launch_args=tuple(launch_arg or ()),
        reasoning_parser=reasoning_parser,
        tool_call_parser=tool_call_parser,
    )
    raise typer.Exit(run_launch(options))
