"""Run the study of a command line, and say how to go on where that is interrupted."""

from __future__ import annotations

import math
import sys
from dataclasses import replace

import typer

from dsabench.cli.progress import make_progress
from dsabench.cli.study_request import Request
from dsabench.errors import StoreError
from dsabench.model.study_result import StudyResult
from dsabench.results.journal import Journal
from dsabench.signals import ignore_interrupts
from dsabench.study.study import Study

_MARGIN = 1.2
"""Boots take their time: more than is forecast is asked for."""


def measure(request: Request, study: Study) -> StudyResult:
    """Run, resume or only conclude; a Ctrl-C ends the process with 130 and the command that goes on."""
    progress = make_progress(study.config.objective.metric)
    if request.conclude:
        return study.conclude(progress)
    before = len(Journal(study.folder).read().records)
    try:
        return study.run(progress)
    except KeyboardInterrupt:
        ignore_interrupts()
        # A round of which nothing is recorded yet is not there to go on with.
        begun = len(Journal(study.folder).read().records) > before
        asked = " --again" if request.again and not begun else ""
        print(
            f"interrupted; what is measured is kept. Go on with:\n  {request.resume_command()}{asked}", file=sys.stderr
        )
        raise typer.Exit(130) from None
    except StoreError as error:
        raise StoreError(f"{error}. When that is mended, go on with: {request.resume_command()}") from error


def go_on(request: Request, result: StudyResult) -> str | None:
    """The command that measures what is left, with more time where there was not enough for a single boot."""
    if not result.left.boots:
        return None
    if request.conclude or result.measured_now:
        return request.resume_command()
    return replace(request, time_s=math.ceil(_MARGIN * result.left.seconds)).resume_command()
