"""`dsabench emit TABLE…|RESULT --as FORM`, `dsabench emit check`, `dsabench emit pr`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from typer.core import TyperGroup

_TABLES = "table"
SchedulerForm = Literal["compose", "helm", "k8s", "lws", "ray", "slurm"]
EmitForm = Literal["command", SchedulerForm, "flags", "text", "plugin", "patch"]


class TablesOrCommand(TyperGroup):
    """A first word that is no subcommand is a table."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put the subcommand's name before words that begin with a table or an option, `--help` too."""
        if args and args[0] not in self.commands:
            args = [_TABLES, *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    cls=TablesOrCommand,
    help="Give tuned tables to the runtime, or deploy a study's best setting: `emit TABLE...|RESULT --as FORM`, `emit check`, `emit pr`.",
    no_args_is_help=True,
)

Tables = Annotated[list[str], typer.Argument(metavar="TABLE...", help="Table files, or folders of them.")]
Json = Annotated[bool, typer.Option("--json", help="One JSON object.")]
Simulated = Annotated[bool, typer.Option("--allow-simulated", help="Emit what rests on random weights' values.")]
Runtime = Annotated[
    Path | None,
    typer.Option(help="sglang's package folder, a site-packages, or a source checkout.", show_default=False),
]


@app.command(_TABLES)
def table(
    tables: Annotated[
        list[str], typer.Argument(metavar="TABLE...|RESULT", help="Table files, folders of them, or a study.")
    ],
    form: Annotated[
        EmitForm,
        typer.Option("--as", help="Launch command, deployment of a scheduler, or tables for an installed runtime."),
    ],
    runtime: Runtime = None,
    apply: Annotated[bool, typer.Option("--apply", help="Patch: write it.")] = False,
    revert: Annotated[bool, typer.Option("--revert", help="Patch: restore every byte.")] = False,
    check: Annotated[bool, typer.Option("--check", help="Patch: what would be done (the default).")] = False,
    diff: Annotated[bool, typer.Option("--diff", help="Patch: print the changes.")] = False,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Folder to write to.")] = None,
    config: Annotated[
        str | None, typer.Option(help="Command, deployment: the config whose other settings are kept.")
    ] = None,
    runtime_version: Annotated[str | None, typer.Option(help="Command, deployment: the sglang that it is for.")] = None,
    image: Annotated[str | None, typer.Option(help="Deployment: the container image.")] = None,
    allow_simulated: Simulated = False,
    json_: Json = False,
) -> None:
    """Tables or a study's best setting as a launch command (`command`; `flags` is the same) or a deployment; tables as a
    patch of the runtime, or a plugin for it. Exit 2: refused, with the reason.

    `dsabench emit check TABLE...` says which tables no longer match what is installed; `dsabench emit pr TABLE...
    --runtime CHECKOUT` makes branch, commits and the text of a pull request.
    """
    from dsabench.cli.run_emit import EmitOptions, refusal_as_json, run_emit

    actions = [name for name, on in (("check", check), ("apply", apply), ("revert", revert), ("diff", diff)) if on]
    options = EmitOptions(
        tuple(tables), form, runtime, tuple(actions), out, config, runtime_version, image, allow_simulated, json_
    )
    with refusal_as_json(asked=json_):
        raise typer.Exit(run_emit(options))


@app.command("check")
def check(
    tables: Tables,
    runtime: Runtime = None,
    device: Annotated[str | None, typer.Option(help="GPU, in place of the one that is here (`NVIDIA H200`).")] = None,
    json_: Json = False,
) -> None:
    """Which tables no longer match the installed runtime, kernel package or GPU; exit 1 where any does not."""
    from dsabench.cli.run_emit import check_tables, refusal_as_json

    with refusal_as_json(asked=json_):
        raise typer.Exit(check_tables(tables, runtime, device, as_json=json_))


@app.command("pr")
def pr(
    tables: Tables,
    runtime: Annotated[Path, typer.Option("--runtime", "--tree", help="A git checkout of sglang.", show_default=False)],
    form: Annotated[
        Literal["tables", "constant"],
        typer.Option(
            "--as", help="Tables with the code that reads them, or one round rule for all of them in the source."
        ),
    ] = "tables",
    kernels: Annotated[
        Path | None,
        typer.Option(help="Constant: folder of the kernel times.", show_default="where the tables' evidence says"),
    ] = None,
    times: Annotated[
        list[Path] | None,
        typer.Option(
            help="Constant: what tune_dsa_prefill.py printed. On the tables' GPU the rule slows none of these batches. May be repeated.",
            show_default=False,
        ),
    ] = None,
    branch: Annotated[
        str | None, typer.Option(help="Name of the new branch.", show_default="dsa-tuned-tables, dsa-prefill-rule")
    ] = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder of the text and its figures.")] = Path(
        "results/local-pr"
    ),
    before: Annotated[
        list[str] | None,
        typer.Option(
            help="Results of servers without the tables, compared in the text; may be repeated.", show_default=False
        ),
    ] = None,
    after: Annotated[
        list[str] | None, typer.Option(help="The same with them, one for each --before.", show_default=False)
    ] = None,
    metric: Annotated[list[str] | None, typer.Option(help="Compare this metric; may be repeated.")] = None,
    allow_simulated: Simulated = False,
    json_: Json = False,
) -> None:
    """Branch, commits and the text of a pull request; pushes nothing and prints the commands that do."""
    from dsabench.cli.run_emit import refusal_as_json
    from dsabench.cli.run_emit_pr import PullRequestOptions, emit_pr

    options = PullRequestOptions(
        tuple(tables),
        runtime,
        branch or ("dsa-tuned-tables" if form == "tables" else "dsa-prefill-rule"),
        out,
        allow_simulated,
        json_,
        before=tuple(before or ()),
        after=tuple(after or ()),
        metrics=tuple(metric or ()),
        form=form,
        kernels=kernels,
        times=tuple(times or ()),
    )
    with refusal_as_json(asked=json_):
        emit_pr(options)
