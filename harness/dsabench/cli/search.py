"""`dsabench search replay|export|generate`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dsabench.errors import InputError

app = typer.Typer(help="Compare search strategies on spaces that were measured completely.", no_args_is_help=True)


def _share(text: str) -> float:
    """Parse `3%` or `0.03`.

    Raises:
        InputError: anything else, or no share between 0 and 1.

    """
    try:
        share = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        share = 0.0
    if not 0 < share < 1:
        raise InputError(f"{text!r} is not a share: use 3% or 0.03")
    return share


@app.command("replay")
def replay(
    landscape: Annotated[
        str, typer.Argument(help="A landscape (.jsonl, .jsonl.gz), or a folder of results whose space was measured.")
    ],
    proposer: Annotated[str, typer.Option(help="gp, tpe, nsga2, random, grid or coordinate.")] = "gp",
    against: Annotated[
        list[str] | None,
        typer.Option(help="A strategy to compare with; may be repeated.", show_default="random and tpe"),
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Searches per strategy.")] = 20,
    within: Annotated[
        float, typer.Option(parser=_share, metavar="SHARE", help="How close to the best setting is enough: 3%, 0.03.")
    ] = "3%",  # type: ignore[assignment]
    settings: Annotated[
        int, typer.Option(min=1, help="Most settings of a search; one that needs more never gets there.")
    ] = 200,
    config: Annotated[
        str | None, typer.Option(help="The config of the results.", show_default="the one of their name")
    ] = None,
    memory: Annotated[
        str | None, typer.Option(help="What an earlier study measured: a landscape, or a folder of results.")
    ] = None,
    plot: Annotated[Path | None, typer.Option(help="FILE.svg: regret over the cost.")] = None,
    json_: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Search a measured space again and again, and say what a strategy pays until its best setting is near the best."""
    from dsabench.cli.run_search import ReplayOptions, run_replay

    compared = tuple(dict.fromkeys((proposer, *(against or ("random", "tpe")))))
    run_replay(ReplayOptions(landscape, compared, seeds, within, settings, config, memory, plot), as_json=json_)


@app.command("export")
def export(
    results: Annotated[Path, typer.Argument(help="A folder of results.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="FILE.jsonl or FILE.jsonl.gz.")],
    config: Annotated[
        str | None, typer.Option(help="The config of the results.", show_default="the one of their name")
    ] = None,
) -> None:
    """Write what a study measured as a landscape. Settings of several rounds (`sweep --again`) are averaged."""
    from dsabench.cli.run_search import run_export

    run_export(results, output, config)


@app.command("generate")
def generate(
    kind: Annotated[str, typer.Argument(help="smooth, rugged (960 settings), wide (3,840) or widest (11,520).")],
    output: Annotated[Path, typer.Option("-o", "--output", help="FILE.jsonl or FILE.jsonl.gz.")],
    seed: Annotated[int, typer.Option(min=0)] = 0,
    noise: Annotated[float, typer.Option(min=0.0, max=1.0, help="Of a measurement: 0.02 is 2 %.")] = 0.02,
    failing: Annotated[float, typer.Option(min=0.03, max=0.9, help="Share of settings that fail.")] = 0.3,
) -> None:
    """Write an invented landscape over the axes of a node of eight GPUs, to compare strategies on."""
    from dsabench.cli.run_search import run_generate

    run_generate(kind, output, seed=seed, noise=noise, failing=failing)
