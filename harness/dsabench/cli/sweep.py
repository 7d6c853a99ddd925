"""`dsabench sweep CONFIG`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def sweep(
    config: Annotated[str, typer.Argument(help="A YAML file, or the name of one in configs/.")],
    results: Annotated[Path | None, typer.Option(help="Where the journal lies.", show_default="results/NAME")] = None,
    max_trials: Annotated[int | None, typer.Option(min=1, help="Trials of the search, at most.")] = None,
    max_boots: Annotated[int | None, typer.Option(min=1, help="Boots in all, at most.")] = None,
    budget: Annotated[str | None, typer.Option(help="Time for this run: 90s, 30m, 1h30m.")] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the plan and its estimated time; start nothing.")
    ] = False,
    again: Annotated[bool, typer.Option("--again", help="Measure everything once more, as new occasions.")] = False,
    lanes: Annotated[
        int, typer.Option(min=1, max=64, help="Boots at once, each on an equal share of the GPUs and cores.")
    ] = 1,
    launch_env: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="Set a variable of runtime.launch.env, such as a PYTHONPATH."),
    ] = None,
    json_: Annotated[bool, typer.Option("--json", help="One JSON object on stdout; progress on stderr.")] = False,
) -> None:
    """Search settings, confirm the best against the default, print the verdict.

    Measured trials are in RESULTS/journal.jsonl the moment they are done. A second run goes on where the first
    stopped, and does nothing when everything is measured.
    """
    from dsabench.cli.figures import parse_duration_s
    from dsabench.cli.run_sweep import Request, run_sweep

    request = Request(
        config=config,
        results=results,
        max_trials=max_trials,
        max_boots=max_boots,
        time_s=None if budget is None else parse_duration_s(budget),
        dry_run=dry_run,
        again=again,
        as_json=json_,
        launch_env=tuple(launch_env or ()),
        lanes=lanes,
    )
    raise typer.Exit(run_sweep(request))
