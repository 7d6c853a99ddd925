"""What every command that measures a study says of it: the plan, the result, what is left and how to go on."""

from __future__ import annotations

import json
from collections.abc import Mapping

from rich.console import Console

from dsabench.cli.figures import show_count, show_duration
from dsabench.cli.run_study import Study
from dsabench.cli.show_plan import plan_facts, print_plan
from dsabench.cli.show_sweep import print_result, result_facts
from dsabench.model.environment import Environment
from dsabench.model.study_result import StudyResult
from dsabench.reporting.site.entry import machine_of
from dsabench.reporting.sweep_plot import draw_sweep


def show_plan(study: Study, more: Mapping[str, object] | None = None) -> None:
    """The boots ahead and their estimated time; `more` goes into the JSON object."""
    if study.request.as_json:
        print(json.dumps({**plan_facts(study.plan), **(more or {})}))
    else:
        print_plan(Console(), study.plan)


def show_result(study: Study, result: StudyResult) -> None:
    """Settings, verdicts, gate, and where everything lies; the picture is drawn."""
    plot = draw_sweep(study.config, result, study.journal.path.parent)
    print_result(Console(), study.config, study.journal.path, result, plot)
    if study.request.conclude:
        print(f"concluded from the records alone, which are of {environment_in_words(study.environment)}")


def study_facts(study: Study, result: StudyResult) -> dict[str, object]:
    """The same for machines, with what is left."""
    plot = draw_sweep(study.config, result, study.journal.path.parent)
    rest = study.left()
    return {
        **result_facts(study.config, study.journal.path, result, plot),
        "environment": {"fingerprint": study.environment.fingerprint, "is": environment_in_words(study.environment)},
        "left": {"boots": rest.boots, "trials": rest.trials, "estimated_s": round(study.plan.seconds_of(rest), 1)},
        "go_on": study.go_on(),
    }


def environment_in_words(environment: Environment) -> str:
    """Machine, driver, runtime and fingerprint."""
    runtime, driver = environment.runtime, environment.hardware.driver
    parts = [machine_of(environment), *([f"driver {driver}"] if driver else []), f"{runtime.kind} {runtime.version}"]
    return f"{', '.join(parts)} (environment {environment.fingerprint})"


def say_next(study: Study, result: StudyResult) -> None:
    """What is left and the command that goes on; where nothing is, how to measure once more."""
    rest, request = study.left(), study.request
    if rest.boots:
        time_s = show_duration(study.plan.seconds_of(rest))
        where = ", on a machine like that of the records," if request.conclude else ""
        print(
            f"Left: {show_count(rest.boots, 'boot')}, {show_count(rest.trials, 'trial')}, about {time_s}. Go on{where} with:"
        )
        print(f"  {study.go_on()}")
    elif result.measured_now == 0 and not request.conclude:
        print(_nothing_done(study, result))


def exit_code(result: StudyResult) -> int:
    """1 where the gate refuses the best setting, 3 where nothing but failures came out."""
    if result.is_refused:
        return 1
    return 0 if any(record.outcome.kind != "failed" for record in result.records) else 3


def _nothing_done(study: Study, result: StudyResult) -> str:
    """Why a run measured nothing, and what to type for more."""
    again = f"{study.request.resume_command()} --again"
    if not result.records or result.unconfirmed:
        return f"Nothing was measured: {result.stopped or 'there is nothing to try'}."
    failed = sum(record.outcome.kind == "failed" for record in result.records)
    what = "everything" if result.stopped is None else "what the budget allows"
    if failed:
        return f"Nothing to do: {what} is tried, {show_count(failed, 'trial')} failed (dsabench results list --failed). Once more: {again}"
    return f"Nothing to do: {what} is measured. Measure it once more: {again}"
