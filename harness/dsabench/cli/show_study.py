"""What every command that measures a study says of it: the plan, the result, what is left and how to go on."""

from __future__ import annotations

import json
from collections.abc import Mapping

from rich.console import Console

from dsabench.cli.figures import show_count, show_duration
from dsabench.cli.progress import make_progress
from dsabench.cli.run_study import go_on
from dsabench.cli.show_plan import plan_facts, print_plan
from dsabench.cli.show_sweep import print_result, result_facts
from dsabench.cli.study_request import Request
from dsabench.model.environment import Environment
from dsabench.model.study_result import StudyResult
from dsabench.reporting.site.entry import machine_of
from dsabench.reporting.sweep_plot import draw_sweep
from dsabench.results.journal import FILE_NAME
from dsabench.study.study import Study


def show_plan(request: Request, study: Study, more: Mapping[str, object] | None = None) -> None:
    """The boots ahead and their estimated time; `more` goes into the JSON object."""
    plan = study.plan(make_progress(study.config.objective.metric))
    if request.as_json:
        print(json.dumps({**plan_facts(plan), **(more or {})}))
    else:
        print_plan(Console(), plan)


def show_result(request: Request, study: Study, result: StudyResult) -> None:
    """Settings, verdicts, gate, and where everything lies; the picture is drawn."""
    plot = draw_sweep(study.config, result, study.folder)
    print_result(Console(), study.config, study.folder / FILE_NAME, result, plot)
    if request.conclude:
        print(f"concluded from the records alone, which are of {environment_in_words(result.environment)}")


def study_facts(request: Request, study: Study, result: StudyResult) -> dict[str, object]:
    """The same for machines, with what is left."""
    plot, left = draw_sweep(study.config, result, study.folder), result.left
    return {
        **result_facts(study.config, study.folder / FILE_NAME, result, plot),
        "environment": {"fingerprint": result.environment.fingerprint, "is": environment_in_words(result.environment)},
        "left": {"boots": left.boots, "trials": left.trials, "estimated_s": round(left.seconds, 1)},
        "go_on": go_on(request, result),
    }


def environment_in_words(environment: Environment) -> str:
    """Machine, driver, runtime and fingerprint."""
    runtime, driver = environment.runtime, environment.hardware.driver
    parts = [machine_of(environment), *([f"driver {driver}"] if driver else []), f"{runtime.kind} {runtime.version}"]
    return f"{', '.join(parts)} (environment {environment.fingerprint})"


def say_next(request: Request, result: StudyResult) -> None:
    """What is left and the command that goes on; where nothing is, how to measure once more."""
    left = result.left
    if left.boots:
        time_s = show_duration(left.seconds)
        where = ", on a machine like that of the records," if request.conclude else ""
        print(
            f"Left: {show_count(left.boots, 'boot')}, {show_count(left.trials, 'trial')}, about {time_s}. Go on{where} with:"
        )
        print(f"  {go_on(request, result)}")
    elif result.measured_now == 0 and not request.conclude:
        print(_nothing_done(request, result))


def exit_code(result: StudyResult) -> int:
    """1 where the gate refuses the best setting, 3 where nothing but failures came out."""
    if result.is_refused:
        return 1
    return 0 if any(record.outcome.kind != "failed" for record in result.records) else 3


def _nothing_done(request: Request, result: StudyResult) -> str:
    """Why a run measured nothing, and what to type for more."""
    again = f"{request.resume_command()} --again"
    if not result.records or result.unconfirmed:
        return f"Nothing was measured: {result.stopped or 'there is nothing to try'}."
    failed = sum(record.outcome.kind == "failed" for record in result.records)
    what = "everything" if result.stopped is None else "what the budget allows"
    if failed:
        return f"Nothing to do: {what} is tried, {show_count(failed, 'trial')} failed (dsabench results list --failed). Once more: {again}"
    return f"Nothing to do: {what} is measured. Measure it once more: {again}"
