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
