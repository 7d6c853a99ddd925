"""`dsabench sweep`: measure the study, show what it came to."""

from __future__ import annotations

import json

from dsabench.cli.run_study import measure
from dsabench.cli.show_study import exit_code, say_next, show_plan, show_result, study_facts
from dsabench.cli.study_request import Request
from dsabench.config.load import load_study


def run_sweep(request: Request) -> int:
    """Run, resume, plan or conclude a sweep; returns the exit code."""
    study = measure(request, load_study(request.config))
    if study.result is None:
        show_plan(study)
        return 0
    if request.as_json:
        print(json.dumps(study_facts(study, study.result)))
    else:
        show_result(study, study.result)
        say_next(study, study.result)
    return exit_code(study.result)
