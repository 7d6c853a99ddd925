"""`dsabench ci CONFIG`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def ci(
    config: Annotated[str, typer.Argument(help="A config; its default setting is booted, its workloads are run.")],
    baseline: Annotated[
        str | None,
        typer.Option(
            help="A folder, a journal or a commit (REF, REF:PATH) that holds the baseline's boots; default: main:results/ci."
        ),
    ] = None,
    against: Annotated[
        str | None,
        typer.Option(help="A config of the baseline, booted now in turns with the other, in place of --baseline."),
    ] = None,
    results: Annotated[
        Path | None, typer.Option(help="Where the boots are recorded; default: results/local-ci/NAME.")
    ] = None,
    boots: Annotated[int, typer.Option(min=2, help="Boots a side, to begin with.")] = 5,
    max_boots: Annotated[
        int | None,
        typer.Option(min=2, help="Boots a side at most, where the first do not decide it; default: as --boots."),
    ] = None,
    effect: Annotated[
        float, typer.Option(min=0.001, max=1.0, help="The slowdown that must not be missed: 0.05 is 5 %.")
    ] = 0.05,
    false_alarms: Annotated[
        float,
        typer.Option(
            min=0.00001, max=0.2, help="Chance of a failure although nothing changed: 0.001 is 1 check in 1,000."
        ),
    ] = 0.001,
    metric: Annotated[
        list[str] | None, typer.Option(help="Judge this metric; may be repeated. Default: the config's.")
    ] = None,
    across: Annotated[
        bool, typer.Option("--across-environments", help="Compare although machine or runtime differ.")
    ] = False,
    no_run: Annotated[bool, typer.Option("--no-run", help="Boot nothing: judge what --results holds already.")] = False,
    junit: Annotated[Path | None, typer.Option(help="Write JUnit XML here.")] = None,
    summary: Annotated[Path | None, typer.Option(help="Write the Markdown summary here too.")] = None,
    json_: Annotated[bool, typer.Option("--json", help="The judgement as one JSON object.")] = False,
) -> None:
    """Has it become slower than the baseline? Exit 1 on a proven regression, 0 otherwise, whatever the noise.

    With --max-boots above --boots an open question is asked again once, with the boots that the spread calls for; each of
    the two looks then has half of the chance of a false alarm. On GitHub the verdicts go to the step summary and
    become annotations.
    """
    from dsabench.cli.run_ci import Check, run_ci

    check = Check(
        config=config,
        baseline=baseline,
        against=against,
        results=results,
        boots=boots,
        max_boots=max(boots, max_boots or 0),
        effect=effect,
        false_alarms=false_alarms,
        metrics=tuple(metric or ()),
        across=across,
        no_run=no_run,
        junit=junit,
        summary=summary,
        as_json=json_,
    )
    raise typer.Exit(run_ci(check))
