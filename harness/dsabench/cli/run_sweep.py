"""`dsabench sweep`: measure the study, show what it came to."""

from __future__ import annotations

import json

from dsabench.cli.run_study import measure
from dsabench.cli.show_study import exit_code, say_next, show_plan, show_result, study_facts
from dsabench.cli.study_request import Request


def run_sweep(request: Request) -> int:
    """Run, resume, plan or conclude a sweep; returns the exit code."""
    study = request.study()
    if request.dry_run:
        show_plan(request, study)
        return 0
    result = measure(request, study)
    if request.as_json:
        print(json.dumps(study_facts(request, study, result)))
    else:
        show_result(request, study, result)
        say_next(request, result)
    return exit_code(result)
