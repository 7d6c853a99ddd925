"""`dsabench config schema` and `dsabench config check FILE…`."""

from __future__ import annotations

import json
from enum import StrEnum
from typing import Annotated

import typer

app = typer.Typer(no_args_is_help=True, help="Check configs, and print their schema.")


class Form(StrEnum):
    """The kinds of YAML file."""

    config = "config"
    sweep = "sweep"
    launch = "launch"
    published = "published"
    eval = "eval"


@app.command()
def schema(
    form: Annotated[
        Form,
        typer.Option(
            "--of",
            help="configs/*.yaml, sweeps/*.yaml, configs/recipes/*.yaml, sweeps/published/*.yaml or evals/*.yaml",
        ),
    ] = Form.config,
) -> None:
    """Print the JSON Schema of the YAML files, with which editors complete and check them."""
    from dsabench.config.files import json_schema

    print(json.dumps(json_schema(form.value), indent=2))


@app.command()
def check(
    files: Annotated[list[str], typer.Argument(metavar="FILE…", help="paths, or names of configs")],
    as_json: Annotated[bool, typer.Option("--json", help="print a list of files with their errors")] = False,
) -> None:
    """Check configs and sweeps without running anything: prints OK or every mistake; exit 2 if there is one."""
    from dsabench.config.load import find_mistakes as mistakes_of

    found = {file: mistakes_of(file) for file in files}
    if as_json:
        fields = ("file", "line", "key", "message")
        listed = [
            {"file": file, "errors": [{field: getattr(error, field) for field in fields} for error in errors]}
            for file, errors in found.items()
        ]
        print(json.dumps(listed, indent=2))
    else:
        for file, errors in found.items():
            for error in errors:
                typer.echo(str(error), err=True)
            if not errors:
                print(f"{file}: OK")
    if any(found.values()):
        raise typer.Exit(2)
