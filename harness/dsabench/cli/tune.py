"""`dsabench tune flashmla-auto|mha-threshold|hisparse CONFIG`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dsabench.cli import study_options as options

app = typer.Typer(help="From measurements to tuned tables.", no_args_is_help=True)

Out = Annotated[
    Path | None, typer.Option("--out", "-o", help="Folder of the table.", show_default="results/NAME/tables")
]
OutBeside = Annotated[
    Path | None, typer.Option("--out", "-o", help="Folder of the table.", show_default="tables, beside the journal")
]


@app.command("flashmla-auto")
def flashmla_auto(
    config: options.Config,
    kernels: Annotated[Path, typer.Option(help="Folder that `kernels bench` wrote.")] = Path("results/local-kernels"),
    study: Annotated[
        Path | None, typer.Option(help="A sweep's results: servers measured under both kernels.", show_default=False)
    ] = None,
    seed: Annotated[int, typer.Option(help="Of folds, search and bootstrap.")] = 0,
    out: Out = None,
    json_: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Which sparse prefill kernel for which batch: forms of the rule fitted and cross-validated, the simplest within the
    noise written as a table.
    """
    from dsabench.cli.run_tune import KernelOrder, tune_kernels

    tune_kernels(KernelOrder(config, kernels, study, seed, out, json_))


@app.command("mha-threshold")
def mha_threshold(
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
    out: OutBeside = None,
    json_: options.Json = False,
) -> None:
    """Sweep the threshold at the server (or go on with it), then let the eval gate decide; exit 1 where it refuses.

    Above index_topk dense attention changes answers: without a passed eval on real weights the table is written, marked
    as unproven, and `emit` refuses it. A confirmation that was cut short gives a verdict and no table.
    """
    from dsabench.cli.run_tune_sweep import tune_threshold
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
        verb=("tune", "mha-threshold"),
        out=out,
    )
    raise typer.Exit(tune_threshold(request))


@app.command("hisparse")
def hisparse(
    config: options.Config,
    gpus: Annotated[int, typer.Option(min=1, help="GPUs that share the experts of the full deployment.")] = 8,
    host_memory_gib: Annotated[
        float | None, typer.Option(help="Host memory for this rank.", show_default="what is free")
    ] = None,
    same_pool: Annotated[
        bool,
        typer.Option("--same-pool", help="All settings in the smallest of their device pools, not each in its own."),
    ] = False,
    results: options.Results = None,
    max_trials: options.MaxTrials = None,
    max_boots: options.MaxBoots = None,
    budget: options.Budget = None,
    dry_run: options.DryRun = False,
    again: options.Again = False,
    conclude: options.Conclude = False,
    lanes: options.Lanes = 1,
    launch_env: options.LaunchEnv = None,
    out: OutBeside = None,
    json_: options.Json = False,
) -> None:
    """Buffer, ratio and block size of HiSparse against off (bf16, fp8) and its own defaults, each in the device pool that a
    full rank has under it; the arithmetic is printed, and refused where host memory is short.

    A confirmation that was cut short gives a verdict and no table.
    """
    from dsabench.cli.run_tune_sweep import HisparseOrder, tune_hisparse
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
        verb=("tune", "hisparse"),
        out=out,
    )
    raise typer.Exit(tune_hisparse(HisparseOrder(request, gpus, host_memory_gib, same_pool)))
