"""The options of a command that measures a study, `sweep` and those of `tune`: the same words with the same meaning."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dsabench.cli.figures import parse_duration_s

Config = Annotated[str, typer.Argument(help="A sweep's YAML file, or the name of one in configs/.")]
Results = Annotated[Path | None, typer.Option(help="Where the journal lies.", show_default="results/NAME")]
MaxTrials = Annotated[int | None, typer.Option(min=1, help="Trials of the search, at most.")]
MaxBoots = Annotated[int | None, typer.Option(min=1, help="Boots in all, at most.")]
Budget = Annotated[
    float | None,
    typer.Option(
        parser=parse_duration_s,
        metavar="DURATION",
        help="Time for this run: 90s, 30m, 1h30m. When it is up, what is measured is concluded from.",
    ),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print the plan and its estimated time; start nothing.")]
Again = Annotated[bool, typer.Option("--again", help="Measure everything once more, as new occasions.")]
Conclude = Annotated[
    bool,
    typer.Option(
        "--conclude", help="Conclude from the records alone, on any machine; ask for no runtime, boot nothing."
    ),
]
Lanes = Annotated[int, typer.Option(min=1, max=64, help="Boots at once, each on an equal share of the GPUs and cores.")]
LaunchEnv = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME=VALUE", help="Set a variable of runtime.launch.env, such as a PYTHONPATH."),
]
Json = Annotated[bool, typer.Option("--json", help="One JSON object on stdout; progress on stderr.")]
