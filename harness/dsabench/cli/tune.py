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
    out: Out = None,
    json_: Json = False,
) -> None:
    """Sweep the threshold at the server (or go on with it), then let the eval gate decide; exit 1 where it refuses.

    Above index_topk dense attention changes answers: without a passed eval on real weights the table is written, marked
    as unproven, and `emit` refuses it.
    """
    from dsabench.cli.run_tune_sweep import SweepOrder, tune_threshold

    raise typer.Exit(tune_threshold(SweepOrder(config, results, again, out, json_)))
