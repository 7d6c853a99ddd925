"""Which records make one study of the site: by name and environment, folders that hold the same trials apart."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from dsabench.config.load import load_study
from dsabench.config.specs import StudyConfig
from dsabench.errors import InputError
from dsabench.model.environment import Environment, without_serials
from dsabench.model.metrics import METRICS
from dsabench.model.record import Scored
from dsabench.model.value import canonical_json
from dsabench.reporting.site.entry import Entry
from dsabench.reporting.site.study import Study

HEADLINE = "total_throughput_tok_s"
"""What a study is judged by where no config says it."""


def make_studies(entries: Sequence[Entry], metric: str | None = None) -> list[Study]:
    """Studies by name and environment. Those with a confirmed answer come first, then those with any answer; real before
    simulated values, later before earlier.

    Folders that hold the same trials of one study are arms of it, each a study: what differs between them, a patch or a
    package, may be nothing that a trial knows of, and their mean would be of neither. A patched runtime is another
    environment, on the same hardware.
    """
    grouped: dict[tuple[str, tuple[str, str, str]], list[Entry]] = {}
    for entry in entries:
        if entry.is_load_test:
            grouped.setdefault((entry.record.study, _installed(entry.record.environment)), []).append(entry)
    made: list[Study] = []
    for (name, _), of_study in grouped.items():
        config = _config_of(name)
        shown = metric or (HEADLINE if config is None else config.objective.metric)
        title = "".join(c if c.isalnum() or c in "-_." else "-" for c in name)[:60]
        first: Study | None = None
        slugs: Counter[str] = Counter()
        for arm, of_arm in _arms(of_study):
            slug = f"{title}-{of_arm[0].record.environment.fingerprint[:8]}"
            ending = f"-{slugs[slug]}" if slugs[slug] else ""
            slugs[slug] += 1
            answers = _answers(entries, of_arm)
            study = Study(name, slug + ending, tuple(of_arm), config, shown, arm, first if arm else None, answers)
            first = first or study
            made.append(study)
    return sorted(_told_apart(made), key=lambda one: (one.standing, not one.is_simulated, last(one)), reverse=True)


def _answers(entries: Sequence[Entry], of_arm: Sequence[Entry]) -> tuple[Entry, ...]:
    """The evals of the gate that the settings of an arm answered."""
    places = {(one.record.study, one.record.environment.fingerprint, one.journal) for one in of_arm}
    return tuple(
        one
        for one in entries
        if one.record.phase == "gate"
        and isinstance(one.record.outcome, Scored)
        and (one.record.study, one.record.environment.fingerprint, one.journal) in places
    )


def _told_apart(studies: Sequence[Study]) -> list[Study]:
    """Studies of which no two have the same title: where two would, the folder goes before the arm."""
    titles = Counter(study.title for study in studies)
    return [study if titles[study.title] == 1 else study.with_folder() for study in studies]


def last(study: Study) -> datetime:
    """When the study's latest record began."""
    return max(entry.record.started_at for entry in study.entries)


def _installed(environment: Environment) -> tuple[str, str, str]:
    """Hardware and the runtime's version: environments that agree in these differ in the runtime's code at most."""
    runtime = environment.runtime
    return canonical_json(without_serials(environment.hardware)), runtime.kind, runtime.version


def _arms(entries: Sequence[Entry]) -> list[tuple[str, list[Entry]]]:
    """(folder's name, its entries), what the others are held against first; where no folders share a trial, a nameless
    arm for each environment.
    """
    folders: dict[Path, list[Entry]] = {}
    for entry in entries:
        folders.setdefault(entry.journal.parent, []).append(entry)
    trials = [{entry.record.id for entry in of_folder if entry.result is not None} for of_folder in folders.values()]
    if len(set().union(*trials)) == sum(map(len, trials)):
        return [("", of_one) for of_one in _by_environment(entries).values()]
    names = [str(folder) for folder in folders]
    shared = len(os.path.commonpath(names))
    arms: list[tuple[str, list[Entry]]] = []
    for folder, of_folder in folders.items():
        name, environments = str(folder)[shared:].strip("/") or folder.name, _by_environment(of_folder)
        alone = len(environments) == 1
        arms += [(name if alone else f"{name} ({print_[:8]})", of_one) for print_, of_one in environments.items()]
    return sorted(arms, key=lambda arm: _added(arm[1]))


def _added(arm: Sequence[Entry]) -> tuple[int, datetime]:
    """An arm with less installed is what the others are held against (a patch or a plugin is one package more); else the earlier."""
    begun = min((entry.record for entry in arm), key=lambda record: record.started_at)
    return len(begun.environment.runtime.packages or ()), begun.started_at


def _by_environment(entries: Sequence[Entry]) -> dict[str, list[Entry]]:
    """Fingerprint → entries."""
    found: dict[str, list[Entry]] = {}
    for entry in entries:
        found.setdefault(entry.record.environment.fingerprint, []).append(entry)
    return found


def _config_of(name: str) -> StudyConfig | None:
    """The config of that name, for its objective; None where there is none, or it is wrong by now."""
    try:
        config = load_study(name)
    except InputError:
        return None
    return config if config.name == name and config.objective.metric in METRICS else None
