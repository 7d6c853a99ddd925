"""`dsabench kernels list|check|bench|report`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

app = typer.Typer(help="Time the operators of DSA, every candidate on the same shapes.", no_args_is_help=True)

Operators = Annotated[list[str] | None, typer.Argument(metavar="[OPERATOR]...", help="Names or patterns; all if none.")]
Candidates = Annotated[str, typer.Option(help="Names or patterns, with commas between them.")]
Shapes = Annotated[str, typer.Option(help="Ids, patterns, `small` or `grid`, with commas between them.")]
Dtypes = Annotated[str, typer.Option(help="How the cache is kept: bf16, fp8.")]
Python = Annotated[str | None, typer.Option(help="The interpreter that has torch and the kernels.")]
Where = Annotated[Literal["auto", "cpu", "cuda"], typer.Option(help="Where to run.")]
Threads = Annotated[int, typer.Option(min=1, help="Of torch, on a CPU.")]
Json = Annotated[bool, typer.Option("--json", help="One JSON object: operator, candidate, status.")]
Seed = Annotated[int, typer.Option(help="Of the random inputs.")]


@app.command("list")
def list_(
    operators: Operators = None, kernel_python: Python = None, device: Where = "auto", json_: Json = False
) -> None:
    """Every candidate, whether it runs here, and why not."""
    from dsabench.cli.run_kernels import ask, list_candidates

    list_candidates(ask("list", operators, device=device), kernel_python, as_json=json_)


@app.command("check")
def check(
    operators: Operators = None,
    candidates: Candidates = "",
    shapes: Shapes = "",
    dtypes: Dtypes = "",
    kernel_python: Python = None,
    device: Where = "auto",
    threads: Threads = 1,
    seed: Seed = 0,
    json_: Json = False,
) -> None:
    """Hold every candidate that runs here against the reference in float64; exit 1 where one is wrong."""
    from dsabench.cli.run_kernels import ask, check_candidates

    request = ask(*("check", operators, candidates, shapes, dtypes), device=device, threads=threads, seed=seed)
    raise typer.Exit(check_candidates(request, kernel_python, as_json=json_))


@app.command("bench")
def bench(
    operators: Operators = None,
    candidates: Candidates = "",
    shapes: Shapes = "",
    dtypes: Dtypes = "",
    kernel_python: Python = None,
    device: Where = "auto",
    threads: Threads = 1,
    seed: Seed = 0,
    budget: Annotated[str, typer.Option(help="Start no new point after 90s, 5m, 1h.")] = "",
    spread: Annotated[
        float, typer.Option(min=0.001, max=0.5, help="Largest half of the median's 95 % interval, as a share of it.")
    ] = 0.02,
    again: Annotated[bool, typer.Option("--again", help="Measure anew what is recorded already.")] = False,
    results: Annotated[Path, typer.Option(help="Folder of the journal and the table.")] = Path("results/local-kernels"),
    json_: Json = False,
) -> None:
    """Check, then time; run again to go on where it stopped. Points that do not come to rest give no number."""
    from dsabench.cli.run_kernels import ask, bench_candidates

    request = ask(
        *("bench", operators, candidates, shapes, dtypes),
        device=device,
        threads=threads,
        seed=seed,
        budget=budget,
        spread=spread,
    )
    raise typer.Exit(bench_candidates(request, kernel_python, results, again=again, as_json=json_))


@app.command("report")
def report(
    results: Annotated[Path, typer.Option(help="Folder that bench wrote.")] = Path("results/local-kernels"),
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder of the page and its pictures.")] = Path(
        "reports/local-kernels"
    ),
) -> None:
    """Which candidate is fastest where, and how far from the floor: one page, one SVG an operator and dtype."""
    from dsabench.cli.run_kernels import report_kernels

    report_kernels(results, output)
