"""`dsabench config schema` and `dsabench config check FILE…`."""

from __future__ import annotations

import json
from enum import StrEnum
from typing import Annotated

import typer

app = typer.Typer(no_args_is_help=True, help="Check configs, and print their schema.")


class FileKind(StrEnum):
    """The kinds of YAML file."""

    config = "config"
    sweep = "sweep"
    launch = "launch"
    published = "published"
    eval = "eval"


@app.command()
def schema(
    form: Annotated[
        FileKind,
        typer.Option(
            "--of",
            help="configs/*.yaml, sweeps/*.yaml, configs/recipes/*.yaml, sweeps/published/*.yaml or evals/*.yaml",
        ),
    ] = FileKind.config,
) -> None:
    """Print the JSON Schema of the YAML files, for completion and checks in editors."""
    from dsabench.config.files import json_schema

    print(json.dumps(json_schema(form.value), indent=2))


@app.command()
def check(
    files: Annotated[list[str], typer.Argument(metavar="FILE…", help="paths, or names of configs")],
    show: Annotated[
        bool, typer.Option("--show", help="print each config with its defaults, sweeps and goal expanded")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="print a list of files with their errors")] = False,
    runtime_version: Annotated[
        str | None, typer.Option(help="also ask this release of SGLang about every setting of the files")
    ] = None,
) -> None:
    """Check configs and sweeps without running anything. Prints OK or every mistake; exit 2 if there is one.

    With --runtime-version also which settings the release refuses; exit 2 if the default is one of them.
    """
    from dsabench.config.load import find_mistakes as mistakes_of

    found = {file: mistakes_of(file) for file in files}
    checked = {}
    if runtime_version is not None:
        from dsabench.cli.check_settings import check_settings

        checked = {file: check_settings(file, runtime_version) for file, errors in found.items() if not errors}
    if as_json:
        fields = ("file", "line", "key", "message")
        listed = [
            {
                "file": file,
                "errors": [{field: getattr(error, field) for field in fields} for error in errors],
                **({} if file not in checked else checked[file].as_json()),
            }
            for file, errors in found.items()
        ]
        print(json.dumps(listed, indent=2))
    else:
        for file, errors in found.items():
            for error in errors:
                typer.echo(str(error), err=True)
            if not errors and show:
                _print_expanded(file)
            elif not errors:
                print(
                    f"{file}: OK"
                    if file not in checked
                    else "\n".join(f"{file}: {one}" for one in checked[file].lines())
                )
    if any(found.values()) or any(one.is_default_refused for one in checked.values()):
        raise typer.Exit(2)


@app.command("from-command")
def from_command(
    command: Annotated[str, typer.Argument(metavar="COMMAND", help="in quotes; - reads it from stdin")],
    runtime_version: Annotated[
        str | None, typer.Option(help="the release that it is for", show_default="the newest that is known")
    ] = None,
    hardware: Annotated[str | None, typer.Option(help="the accelerator that it is for, such as h200")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="one object: config, remarks, verdict, resolved, …")] = False,
) -> None:
    """Turn a launch command of sglang into a config: knobs where there are any, `args` for the rest.

    What is left out, and what sglang takes for all that the command does not say, stands in comments. Exit 2 if sglang
    refuses the command; the config is printed all the same.
    """
    import sys

    from dsabench.cli.from_command import config_from_command

    found = config_from_command(sys.stdin.read() if command == "-" else command, runtime_version, hardware)
    print(json.dumps(found.as_json(), indent=2) if as_json else found.yaml(), end="\n" if as_json else "")
    for note in found.check.notes:
        typer.echo(f"note: {note.line}", err=True)
    for violation in found.check.violations:
        typer.echo(f"error: {violation.line}", err=True)
    if found.is_refused:
        raise typer.Exit(2)


def _print_expanded(file: str) -> None:
    import yaml

    from dsabench.config.load import load_expanded

    shown = load_expanded(file).model_dump(mode="json", exclude_none=True, fallback=dict)
    tunes = (one["study"] for one in shown.get("autotune", {}).values() if isinstance(one, dict))
    for one in (shown, *tunes):
        launch = one.get("runtime", one)["launch"]
        launch["env"] = dict.fromkeys(launch["env"], "(not shown)")  # it may hold tokens
    print(yaml.safe_dump(shown, sort_keys=False, allow_unicode=True, default_flow_style=None, width=110), end="")
