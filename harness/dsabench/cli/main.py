"""The `dsabench` command: every error becomes one line on stderr and an exit code.

0 done · 1 a gate failed · 2 the user's input is wrong · 3 the runtime failed · 130 interrupted (state is kept).
"""

from __future__ import annotations

import sys
from typing import Annotated

import typer
from typer.exceptions import TyperException

from dsabench import __version__
from dsabench.cli import compare, config, launch, results, slices, sweep
from dsabench.errors import DsabenchError, InputError

app = typer.Typer(
    help="Benchmark and autotune SGLang serving of DeepSeek-Sparse-Attention models.",
    epilog="Exit codes: 0 done, 1 a gate failed, 2 wrong input, 3 the runtime failed, 130 interrupted.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command("sweep")(sweep.sweep)
app.command("launch")(launch.launch)
app.command("slice")(slices.slice_model)
app.command("compare")(compare.compare)
app.add_typer(results.app, name="results")
app.add_typer(config.app, name="config")


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


def main() -> None:
    """Run the command line and exit with its code."""
    sys.exit(run(sys.argv[1:]))


def run(argv: list[str]) -> int:
    """Run one command line; returns its exit code."""
    try:
        code = app(args=argv, prog_name="dsabench", standalone_mode=False)
    except TyperException as error:
        return _say_usage(error)
    except InputError as error:
        return _say(str(error), 2)
    except DsabenchError as error:
        return _say(str(error), 3)
    except (KeyboardInterrupt, typer.Abort):
        return 130
    except BrokenPipeError:
        # The reader of our output went away (`… | head`): nothing is wrong, and nothing more can be said.
        sys.stderr.close()
        return 0
    return code if isinstance(code, int) else 0


def _say(message: str, code: int) -> int:
    print(f"error: {message}", file=sys.stderr)
    return code


def _say_usage(error: TyperException) -> int:
    """A wrong command line in one line; `dsabench` without a word is asking for help."""
    message = error.format_message()
    if type(error).__name__ == "NoArgsIsHelpError":
        print(message)
        return 0
    return _say(" ".join(message.split()), 2)
