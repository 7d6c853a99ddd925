"""`dsabench slice --model M --gpus N --strategy S OUT_DIR`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def slice_model(
    out_dir: Annotated[Path, typer.Argument(help="Folder for config.json and slice.yaml; made if it is missing.")],
    model: Annotated[str, typer.Option(help="v3.2 or glm-5.")] = "v3.2",
    gpus: Annotated[int, typer.Option(min=1, help="GPUs of the deployment.")] = 8,
    strategy: Annotated[str, typer.Option(help="tpN, dpN, epN, mtp, by commas; tp is the attention's.")] = "dp8,ep8",
    layers: Annotated[int | None, typer.Option(min=2, help="Layers to keep.", show_default="all")] = None,
    chunked_prefill_size: Annotated[int, typer.Option(min=1, help="Of the whole deployment.")] = 8192,
    max_running_requests: Annotated[int, typer.Option(min=1, help="Of the whole deployment.")] = 256,
    accept_length: Annotated[float | None, typer.Option(min=1, help="What MTP is pinned to.")] = None,
) -> None:
    """Cut out what one GPU of a deployment computes, to be tuned on one GPU with random weights.

    Writes the model's config.json and slice.yaml, a config for `dsabench sweep` with the settings of one rank.
    """
    from dsabench.cli.run_slice import write_slice
    from dsabench.runtimes.sglang.slice import Limits, cut, parse_strategy
    from dsabench.runtimes.sglang.widths import WIDTHS

    limits = Limits(chunked_prefill_size, max_running_requests, accept_length)
    depth = layers or (WIDTHS[model].layers if model in WIDTHS else 2)
    piece = cut(model, parse_strategy(strategy, gpus), depth, limits)
    write_slice(piece, strategy, out_dir)
