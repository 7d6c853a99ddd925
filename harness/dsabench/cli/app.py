"""The commands of typer. argparse reads the flags of `bench`, which is only listed here."""

from __future__ import annotations

from typing import Annotated

import typer

from dsabench import __version__
from dsabench.cli import (
    accept,
    autotune,
    ci,
    compare,
    config,
    doctor,
    emit,
    init,
    kernels,
    launch,
    recipe,
    report,
    results,
    runtime,
    search,
    slices,
    sweep,
    trace,
    tune,
)
from dsabench.cli import eval as eval_
from dsabench.cli.options import command_of

app = typer.Typer(
    help="Benchmark and autotune SGLang serving of DeepSeek-Sparse-Attention models.",
    epilog="Exit codes: 0 done, 1 a gate failed, 2 wrong input, 3 the runtime failed, 130 interrupted.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
app.command("init")(command_of(init.InitOptions, init.init))
app.command("recipe")(command_of(recipe.RecipeOptions, recipe.recipe))
app.command("accept")(command_of(accept.AcceptOptions, accept.accept))
app.command("autotune")(command_of(autotune.AutotuneOptions, autotune.autotune))
app.command("sweep")(command_of(sweep.SweepOptions, sweep.sweep))


@app.command("bench", add_help_option=False, context_settings={"ignore_unknown_options": True})
def bench(words: Annotated[list[str] | None, typer.Argument(metavar="[FLAGS]...")] = None) -> None:
    """One load test against a URL, with the flags, block and JSON line of sglang's bench_serving."""
    from dsabench.cli.bench import bench as run

    raise typer.Exit(run(words or []))


app.command("trace")(trace.trace)
app.command("launch")(launch.launch)
app.command("slice")(slices.slice_model)
app.command("eval")(eval_.evaluate)
app.command("compare")(compare.compare)
app.command("ci")(command_of(ci.CiOptions, ci.ci))
app.command("report")(report.report)
app.command("doctor")(doctor.doctor)
app.add_typer(kernels.app, name="kernels")
app.add_typer(tune.app, name="tune")
app.add_typer(emit.app, name="emit")
app.add_typer(search.app, name="search")
app.add_typer(results.app, name="results")
app.add_typer(config.app, name="config")
app.add_typer(runtime.app, name="runtime")


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"dsabench {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    _version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Benchmark and autotune SGLang serving of DeepSeek-Sparse-Attention models."""
