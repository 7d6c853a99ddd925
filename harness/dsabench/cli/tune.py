"""`dsabench tune flashmla-auto|mha-threshold|hisparse CONFIG`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(help="From measurements to tuned tables.", no_args_is_help=True)

Config = Annotated[str, typer.Argument(help="A sweep's YAML file, or the name of one in configs/.")]
Out = Annotated[
    Path | None, typer.Option("--out", "-o", help="Folder of the table.", show_default="results/NAME/tables")
]
Json = Annotated[bool, typer.Option("--json", help="One JSON object.")]
Lanes = Annotated[int, typer.Option(min=1, max=64, help="Boots at once, each on an equal share of the GPUs and cores.")]


@app.command("flashmla-auto")
def flashmla_auto(
    config: Config,
    kernels: Annotated[Path, typer.Option(help="Folder that `kernels bench` wrote.")] = Path("results/local-kernels"),
    study: Annotated[
        Path | None, typer.Option(help="A sweep's results: servers measured under both kernels.", show_default=False)
    ] = None,
    seed: Annotated[int, typer.Option(help="Of folds, search and bootstrap.")] = 0,
    out: Out = None,
    json_: Json = False,
) -> None:
    """Which sparse prefill kernel for which batch: forms of the rule fitted and cross-validated, the simplest within the
    noise written as a table.
    """
    from dsabench.cli.run_tune import KernelOrder, tune_kernels

    tune_kernels(KernelOrder(config, kernels, study, seed, out, json_))


@app.command("mha-threshold")
def mha_threshold(
    config: Config,
    results: Annotated[Path | None, typer.Option(help="Folder of the sweep.", show_default="results/NAME")] = None,
    again: Annotated[bool, typer.Option("--again", help="Measure everything once more.")] = False,
    lanes: Lanes = 1,
    out: Out = None,
    json_: Json = False,
) -> None:
    """Sweep the threshold at the server (or go on with it), then let the eval gate decide; exit 1 where it refuses.

    Above index_topk dense attention changes answers: without a passed eval on real weights the table is written, marked
    as unproven, and `emit` refuses it.
    """
    from dsabench.cli.run_tune_sweep import SweepOrder, tune_threshold

    raise typer.Exit(tune_threshold(SweepOrder(config, results, again, out, json_, lanes)))


@app.command("hisparse")
def hisparse(
    config: Config,
    gpus: Annotated[int, typer.Option(min=1, help="GPUs that share the experts of the full deployment.")] = 8,
    host_memory_gib: Annotated[
        float | None, typer.Option(help="Host memory for this rank.", show_default="what is free")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the arithmetic; measure nothing.")] = False,
    results: Annotated[Path | None, typer.Option(help="Folder of the sweep.", show_default="results/NAME")] = None,
    again: Annotated[bool, typer.Option("--again", help="Measure everything once more.")] = False,
    lanes: Lanes = 1,
    out: Out = None,
    json_: Json = False,
) -> None:
    """Buffer, ratio and block size of HiSparse against off (bf16, fp8) and its own defaults, in the pool of a full rank;
    the arithmetic is printed, and refused where host memory is short.
    """
    from dsabench.cli.run_tune_sweep import HisparseOrder, SweepOrder, tune_hisparse

    order = SweepOrder(config, results, again, out, json_, lanes)
    raise typer.Exit(tune_hisparse(HisparseOrder(order, gpus, host_memory_gib, dry_run)))
