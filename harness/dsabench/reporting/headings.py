"""What a verdict is about, in as few words as tell it from the others."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dsabench.model.record import Record
from dsabench.model.verdict import Verdict

Heading = Callable[[Verdict], str]


def workload_of(verdict: Verdict) -> str:
    """Enough where one setting is held against one other."""
    return verdict.workload


def headings(records: Sequence[Record], verdicts: Sequence[Verdict]) -> Heading:
    """`FOLDER, STUDY, WORKLOAD: knob=value …` of what is not the same in all that is shown.

    A knob is told where the settings of its study that are shown differ in it.
    """
    shown = {verdict.trial for verdict in verdicts}
    told = [record for record in records if record.id in shown]
    study_of = {record.id: record.study for record in told}
    settings = _settings(told)
    places = {verdict.arm for verdict in verdicts}
    environments = {trial: {v.environment for v in verdicts if v.trial == trial} for trial in shown}

    def heading(verdict: Verdict) -> str:
        trial = verdict.trial or ""
        parts = [
            verdict.arm if len(places) > 1 else None,
            study_of.get(trial) if len(set(study_of.values())) > len(places) else None,
            verdict.workload,
        ]
        words = ", ".join(part for part in parts if part)
        if len(environments[verdict.trial]) > len(places) and verdict.environment:
            words += f" in environment {verdict.environment[:8]}"
        return words + (f": {settings[trial]}" if settings.get(trial) else "")

    return heading


def _settings(records: Sequence[Record]) -> dict[str, str]:
    """Trial → what sets it apart within its study."""
    studies: dict[str, dict[str, dict[str, str]]] = {}
    for record in records:
        runtime = record.trial.runtime
        facts: dict[str, object] = {"model": runtime.model, **runtime.knobs, **runtime.env}
        studies.setdefault(record.study, {})[record.id] = {name: str(value) for name, value in facts.items()}
    found = {}
    for trials in studies.values():
        same = set.intersection(*(set(facts.items()) for facts in trials.values()))
        for trial, told in trials.items():
            found[trial] = " ".join(f"{name}={value}" for name, value in told.items() if (name, value) not in same)
    return found
