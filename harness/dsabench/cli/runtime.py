"""`dsabench runtime add|list|remove`: releases of SGLang whose own argument code can be asked."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from dsabench.sglang.resolve.releases import AddedRelease

app = typer.Typer(
    no_args_is_help=True,
    help="Releases of SGLang that are asked what they make of a setting. They need no GPU and are not installed.",
)


@app.command()
def add(
    release: Annotated[str, typer.Argument(metavar="sglang==VERSION", help="A release, or the name of a wheel file.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print the release as JSON.")] = False,
) -> None:
    """Download a release's wheel without its dependencies, and transformers in the version that it pins.

    From then on `--runtime-version VERSION` takes its own flags, and its own checks refuse what it would refuse at boot.
    """
    from dsabench.sglang.resolve.adding import add_release

    added = add_release(release, lambda line: typer.echo(line, err=True))
    print(json.dumps(_row(added)) if as_json else f"sglang {added.version} is added")


@app.command("list")
def list_(as_json: Annotated[bool, typer.Option("--json", help="Print a list of releases as JSON.")] = False) -> None:
    """The releases that were added."""
    from dsabench.sglang.resolve.releases import added_releases

    releases = added_releases()
    if as_json:
        print(json.dumps([_row(one) for one in releases], indent=2))
        return
    for one in releases:
        print(f"sglang {one.version:14} {one.size / 1e6:4.0f} MB  {one.folder}")
    if not releases:
        print("none; `dsabench runtime add sglang==VERSION` adds one")


@app.command()
def remove(version: Annotated[str, typer.Argument(help="As `dsabench runtime list` shows it.")]) -> None:
    """Remove a release, and what only it needs."""
    from dsabench.sglang.resolve.releases import remove_release

    remove_release(version)
    print(f"sglang {version} is removed")


def _row(release: AddedRelease) -> dict[str, str | int | None]:
    return {
        "kind": "sglang",
        "version": release.version,
        "sha256": release.sha256,
        "packages": release.packages,
        "folder": str(release.folder),
        "bytes": release.size,
    }
