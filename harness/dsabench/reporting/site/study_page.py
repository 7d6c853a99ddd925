"""A study's page: the pictures and lists that its template shows."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from dsabench.model.environment import Environment
from dsabench.model.metrics import METRICS
from dsabench.model.record import Measured
from dsabench.reporting.site.accuracy import draw_accuracy
from dsabench.reporting.site.entry import Entry
from dsabench.reporting.site.knob_effects import draw_effects
from dsabench.reporting.site.load_curves import draw_curves
from dsabench.reporting.site.paper import Paper
from dsabench.reporting.site.study import Study
from dsabench.reporting.site.tradeoff import draw_tradeoff
from dsabench.results.machines import clock_words, low_clocks

_WARNINGS = 12
_ACCEPT = "accept_length.mean"
_SECTIONS = (
    ("answer", "Best against default"),
    ("ablation", "What each change gives"),
    ("accuracy", "Speed against accuracy"),
    ("tradeoff", "Throughput against latency"),
    ("settings", "Settings"),
    ("knobs", "Which knob matters"),
    ("load", "Load curves"),
    ("failures", "Failures"),
    ("warnings", "Warnings"),
    ("environment", "Environment"),
)


@dataclass(frozen=True, slots=True)
class FailureGroup:
    """Trials that failed alike."""

    fault: str
    stage: str
    entries: tuple[Entry, ...]


def write_study(paper: Paper, study: Study) -> None:
    """The study's page."""
    shown = {
        "ablation": study.ablation,
        "accuracy": [(name, svg) for name in study.scores if (svg := _svg(draw_accuracy(study, name))) is not None],
        "tradeoff": _tradeoffs(study),
        "knobs": _svg(draw_effects(study)),
        "load": [Markup(svg) for svg in draw_curves(study)],  # noqa: S704  (drawn here, its texts escaped)
        "failures": failure_groups(study.entries),
        "warnings": _warnings(study.entries),
    }
    paper.write(
        "study.html",
        study.page,
        study=study,
        better=METRICS[study.metric].better,
        accept=next((name for name in study.workloads if any(s.figure(name, _ACCEPT) for s in study.settings)), None),
        sections=[(id_, name) for id_, name in _SECTIONS if shown.get(id_, True)],
        accuracies=shown["accuracy"],
        tradeoffs=shown["tradeoff"],
        effects=shown["knobs"],
        curves=shown["load"],
        failures=shown["failures"],
        warnings=shown["warnings"],
        labels={setting.spec.id: setting.label for setting in study.settings},
        environment=environment_facts(study.environment),
    )


def _svg(svg: str | None) -> Markup | None:
    return None if svg is None else Markup(svg)  # noqa: S704  (drawn here, its texts escaped)


def _tradeoffs(study: Study) -> list[tuple[str, Markup]]:
    drawn = ((workload, _svg(draw_tradeoff(study, workload))) for workload in list(study.workloads)[:6])
    return [(workload, svg) for workload, svg in drawn if svg is not None]


def failure_groups(entries: Sequence[Entry]) -> list[FailureGroup]:
    """By fault and stage, the commonest first."""
    groups: dict[tuple[str, str], list[Entry]] = {}
    for entry in entries:
        if entry.failure is not None:
            groups.setdefault((entry.failure.fault, entry.failure.stage), []).append(entry)
    made = [FailureGroup(fault, stage, tuple(alike)) for (fault, stage), alike in groups.items()]
    return sorted(made, key=lambda group: -len(group.entries))


def _warnings(entries: Sequence[Entry]) -> list[tuple[str, int]]:
    """Warnings alike but for their figures are one; percentiles refused for want of requests are in every record."""
    kinds: dict[str, str] = {}
    counts: Counter[str] = Counter()
    for entry in entries:
        outcome = entry.record.outcome
        for warning in outcome.warnings if isinstance(outcome, Measured) else ():
            if not warning.startswith("no p"):
                counts[kinds.setdefault(re.sub(r"[\d.,]+", "#", warning), warning)] += 1
    slow = low_clocks(entry.record for entry in entries)
    of_slow = sum(entry.record.boot in slow for entry in entries)
    return [*([(clock_words(slow), of_slow)] if slow else []), *counts.most_common(_WARNINGS)]


def environment_facts(environment: Environment) -> list[tuple[str, str]]:
    """What decides the fingerprint, and what is recorded beside it."""
    hardware, runtime = environment.hardware, environment.runtime
    gpus = ", ".join(f"{gpu.name} ({gpu.memory_mib:,} MiB)" for gpu in hardware.gpus)
    packages = ", ".join(f"{name} {version}" for name, version in (runtime.packages or {}).items())
    facts = [
        ("accelerators", gpus or "none"),
        ("CPU", f"{hardware.cpu}, {hardware.cpu_cores} cores, {hardware.memory_mib:,} MiB"),
        ("driver, CUDA", ", ".join(one for one in (hardware.driver, hardware.cuda) if one)),
        ("runtime", f"{runtime.kind} {runtime.version}"),
        ("its code", runtime.wheel_hash[:16]),
        ("torch, Python", ", ".join(one for one in (runtime.torch, runtime.python) if one)),
        ("packages", packages),
        ("system", environment.os),
        ("host", " ".join(one for one in (environment.host, environment.machine) if one)),
        (
            "dsabench",
            " ".join(o for o in (environment.dsabench_version, (environment.dsabench_commit or "")[:12]) if o),
        ),
        ("fingerprint", environment.fingerprint),
    ]
    return [(name, value) for name, value in facts if value]
