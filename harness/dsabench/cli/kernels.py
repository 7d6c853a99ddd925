"""`dsabench kernels list|check|bench|report`."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

app = typer.Typer(help="Time the operators of DSA, every candidate on the same shapes.", no_args_is_help=True)

Operators = Annotated[list[str] | None, typer.Argument(metavar="[OPERATOR]...", help="Names or patterns; all if none.")]
Python = Annotated[str | None, typer.Option(help="The interpreter that has torch and the kernels.")]
Where = Annotated[Literal["auto", "cpu", "cuda"], typer.Option(help="Where to run.")]
Json = Annotated[bool, typer.Option("--json", help="One JSON object: operator, candidate, status.")]
Results = Annotated[Path, typer.Option(help="Folder of the journal and the table.")]
_RESULTS = Path("results/local-kernels")


def _selection(
    operators: Operators = None,
    candidates: Annotated[str, typer.Option(help="Names or patterns, with commas between them.")] = "",
    shapes: Annotated[str, typer.Option(help="Ids, patterns, or a set: `small`, `grid`, `study`, `rank`.")] = "",
    dtypes: Annotated[str, typer.Option(help="How the cache is kept: bf16, fp8.")] = "",
    kernel_python: Python = None,
    device: Where = "auto",
    threads: Annotated[int, typer.Option(min=1, max=1024, help="Of torch, on a CPU.")] = 1,
    seed: Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Of the random inputs.")] = 0,
    patience: Annotated[str, typer.Option(help="End a kernel that is silent for so long: 90s, 5m.")] = "5m",
) -> None:
    """Options of every command that runs kernels: which points, and how."""


def _timing(
    budget: Annotated[
        str, typer.Option(help="Begin no new shape after measuring for 90s, 5m, 1h; the first is always measured.")
    ] = "",
    spread: Annotated[
        float, typer.Option(min=0.001, max=0.5, help="Largest half of the median's 95 % interval, as a share of it.")
    ] = 0.02,
    sustain: Annotated[
        float,
        typer.Option(min=0, max=60, help="Then run each back to back for so many seconds, clock and power read."),
    ] = 0.0,
) -> None:
    """Options of every command that times."""


def _with(*options: Callable[..., None]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the parameters of `options` in front of its own; they arrive as `asked`, by name."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        shared = [p for function in options for p in inspect.signature(function, eval_str=True).parameters.values()]
        own = [p for p in inspect.signature(command, eval_str=True).parameters.values() if p.name != "asked"]

        def run(**values: Any) -> None:
            command(asked={p.name: values.pop(p.name) for p in shared}, **values)

        run.__doc__ = command.__doc__
        parameters = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in (*shared, *own)]
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {p.name: p.annotation for p in parameters}
        return run

    return decorate


@app.command("list")
def list_(
    operators: Operators = None, kernel_python: Python = None, device: Where = "auto", json_: Json = False
) -> None:
    """Every candidate, whether it runs here, and why not."""
    from dsabench.cli.run_kernels import ask, list_candidates

    list_candidates(ask("list", operators=operators, device=device), kernel_python, as_json=json_)


@app.command("check")
@_with(_selection)
def check(
    asked: dict[str, Any],
    seeds: Annotated[int, typer.Option(min=1, max=10_000, help="On so many seeds, from --seed on.")] = 1,
    json_: Json = False,
) -> None:
    """Hold every candidate that runs here against the reference in float64; exit 1 where one is wrong."""
    from dsabench.cli.run_kernels import ask, check_candidates

    python = asked.pop("kernel_python")
    raise typer.Exit(check_candidates(ask("check", **asked, seeds=seeds), python, as_json=json_))


@app.command("bench")
@_with(_selection, _timing)
def bench(
    asked: dict[str, Any],
    again: Annotated[bool, typer.Option("--again", help="Measure anew what is recorded already.")] = False,
    results: Results = _RESULTS,
    json_: Json = False,
) -> None:
    """Check, then time; run again to go on where it stopped. Points that do not come to rest give no number."""
    from dsabench.cli.run_kernels import ask, bench_candidates

    python = asked.pop("kernel_python")
    raise typer.Exit(bench_candidates(ask("bench", **asked), python, results, again=again, as_json=json_))


@app.command("report")
def report(
    results: Annotated[Path, typer.Option(help="Folder that bench wrote.")] = _RESULTS,
    output: Annotated[
        Path, typer.Option("--out", "-o", "--output", help="Folder of the page and its pictures.")
    ] = Path("reports/local-kernels"),
) -> None:
    """Which candidate is fastest where, and how far from the floor: one page, a coloured table an operator and rank."""
    from dsabench.cli.run_kernels import report_kernels

    report_kernels(results, output)
