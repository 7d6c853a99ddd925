"""`dsabench compare BASE CANDIDATE`."""

from __future__ import annotations

import math
from typing import Annotated

import typer

from dsabench.errors import InputError


def compare(
    base: Annotated[
        str,
        typer.Argument(
            help="A folder of results, a journal, or a commit (main, HEAD~1:results/h200), with #TRIAL behind it or not; a published run (its name, or a YAML "
            "file); or bench_serving's JSONL, with #LINE if it has several."
        ),
    ],
    candidate: Annotated[str, typer.Argument(help="The same for what is held against the base.")],
    metric: Annotated[list[str] | None, typer.Option(help="Compare this metric; may be repeated.")] = None,
    across: Annotated[
        bool, typer.Option("--across-environments", help="Compare although machine or runtime differ.")
    ] = False,
    not_interleaved: Annotated[
        bool,
        typer.Option("--not-interleaved", help="Judge boots that did not take turns by the drift between occasions."),
    ] = False,
    occasion_spread: Annotated[
        float | None,
        typer.Option(
            min=0.0001,
            max=1.0,
            help="With it: how far the level moves between two occasions, 0.03 is 3 %. Default: measured, from occasions of one setting.",
        ),
    ] = None,
    margin: Annotated[
        float | None,
        typer.Option(min=0.0001, max=1.0, help="Evals: loss of accuracy that does not matter; 0.01 is a point."),
    ] = None,
    gate: Annotated[bool, typer.Option("--gate", help="Exit 1 when any verdict is worse.")] = False,
    json_: Annotated[
        bool, typer.Option("--json", help="The verdicts, `interleaved`, `pairs` and `reason` as JSON.")
    ] = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="A Markdown table, for a pull request.")] = False,
) -> None:
    """Is CANDIDATE better than BASE? Better, worse, no difference or inconclusive, with interval and detectable
    effect.

    The first line says whether the boots took turns. Where they did not, the machine's drift may be the whole difference, and there
    is no verdict (--not-interleaved). Exit code 2: nothing can be judged.

    The boot is the unit: ten thousand requests of one boot are one observation. A published run, or a line of
    bench_serving's JSONL, is one run without spread: it is shown side by side, with every setting that differs, and
    gets no verdict.

    With --margin, or two files of an eval's samples, evals are compared question by question: not less accurate by
    more than the margin, yes, no or inconclusive.
    """
    from dsabench.cli.compare_evals import are_samples, run_compare_evals
    from dsabench.cli.run_compare import run_compare
    from dsabench.stats.occasions import ApartOptions

    if margin is not None or are_samples((base, candidate)):
        raise typer.Exit(run_compare_evals((base, candidate), margin, gate=gate, as_json=json_))
    if occasion_spread is not None and not not_interleaved:
        raise InputError("--occasion-spread: only with --not-interleaved")
    apart = ApartOptions(not_interleaved, None if occasion_spread is None else math.log1p(occasion_spread))
    sides, asked = (base, candidate), metric or []
    raise typer.Exit(
        run_compare(sides, asked, across=across, gate=gate, as_json=json_, as_markdown=markdown, apart=apart)
    )
