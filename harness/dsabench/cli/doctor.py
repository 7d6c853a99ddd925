"""`dsabench doctor`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def doctor(
    config: Annotated[
        str | None, typer.Argument(help="A YAML file, or the name of one in configs/: what it starts is looked at.")
    ] = None,
    python: Annotated[Path | None, typer.Option(help="Interpreter that has sglang; wins over CONFIG's.")] = None,
    base_url: Annotated[str | None, typer.Option(help="A running server to try out: http://HOST:PORT.")] = None,
    api_key_env: Annotated[str | None, typer.Option(help="Name of the variable that holds the server's key.")] = None,
    results: Annotated[Path, typer.Option(help="Where records will lie.")] = Path("results"),
    timeout: Annotated[float, typer.Option(min=0.1, help="Seconds for each answer of the server.")] = 120.0,
    question_timeout: Annotated[
        float, typer.Option(min=0.1, help="Seconds for each question about thinking and tool calls.")
    ] = 60.0,
    json_: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> None:
    """Look for what is wrong with this machine, an installed sglang or a running server, and say what mends it.

    Exits with 0 when there is no problem (warnings are none), 1 when there is one, 2 when the question is wrong.
    """
    from dsabench.cli.show_findings import findings_json, print_findings, tell_progress
    from dsabench.config.load import load_launch
    from dsabench.doctor.run import DoctorOptions, run_checks
    from dsabench.signals import run_loop

    complaint = DoctorOptions(
        runtime=None if config is None else load_launch(config),
        python=python,
        base_url=base_url,
        api_key_env=api_key_env,
        results=results,
        timeout_s=timeout,
        question_timeout_s=question_timeout,
    )
    with tell_progress(quiet=json_) as tell:
        findings = run_loop(run_checks(complaint, tell))
    if json_:
        print(findings_json(findings))
    else:
        print_findings(findings)
    raise typer.Exit(1 if any(finding.verdict == "problem" for finding in findings) else 0)
