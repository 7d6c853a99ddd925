"""`dsabench sweep CONFIG`."""

from __future__ import annotations

import typer

from dsabench.cli import study_options as options


def sweep(
    config: options.Config,
    results: options.Results = None,
    max_trials: options.MaxTrials = None,
    max_boots: options.MaxBoots = None,
    budget: options.Budget = None,
    dry_run: options.DryRun = False,
    again: options.Again = False,
    conclude: options.Conclude = False,
    lanes: options.Lanes = 1,
    launch_env: options.LaunchEnv = None,
    json_: options.Json = False,
) -> None:
    """Search settings, confirm the best against the default, print the verdict.

    Measured trials are in RESULTS/journal.jsonl the moment they are done. A second run goes on where the first
    stopped, and does nothing when everything is measured.
    """
    from dsabench.cli.run_sweep import run_sweep
    from dsabench.cli.study_request import Request

    request = Request(
        config=config,
        results=results,
        max_trials=max_trials,
        max_boots=max_boots,
        time_s=budget,
        dry_run=dry_run,
        again=again,
        conclude=conclude,
        lanes=lanes,
        launch_env=tuple(launch_env or ()),
        as_json=json_,
    )
    raise typer.Exit(run_sweep(request))
