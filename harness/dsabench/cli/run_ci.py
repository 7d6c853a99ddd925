"""A regression check: boot, compare with the baseline, say it where CI looks."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from rich.console import Console

from dsabench.cli.metric_names import require_metrics
from dsabench.cli.run_compare import side_of
from dsabench.cli.verdict_table import VerdictTable
from dsabench.config.load import load_study
from dsabench.config.specs import StudyConfig
from dsabench.errors import InputError, TrialFault
from dsabench.machine.cpu_use import is_disturbed
from dsabench.model.record import Measured as MeasuredOutcome
from dsabench.model.record import Record
from dsabench.reporting.ci_files import append_summary, github_commands, summary_markdown, write_junit
from dsabench.reporting.comparison import Side
from dsabench.reporting.regression import (
    Judgement,
    Rules,
    count_rounds,
    judge,
    neighbours_of,
    undisturbed,
    undisturbed_rounds,
)
from dsabench.results.journal import Journal
from dsabench.signals import run_loop
from dsabench.study.regression_check import OpenRuntime, look_at, measure_boots
from dsabench.study.session import StudyObserver

_BASELINE = "main:results/ci"
_TRIES = 2
"""Boots for each that is wanted, where others disturb them."""


@dataclass(frozen=True, slots=True)
class Check:
    """The command line of a check."""

    config: str
    baseline: str | None
    against: str | None
    results: Path | None
    boots: int
    max_boots: int
    effect: float
    false_alarms: float
    metrics: tuple[str, ...]
    across: bool
    no_run: bool
    junit: Path | None
    summary: Path | None
    as_json: bool


@dataclass(frozen=True, slots=True)
class Measured:
    """One side that is measured here."""

    config: StudyConfig
    installed: OpenRuntime
    folder: Path

    def side(self, name: str) -> Side:
        """Its records of this environment."""
        fingerprint = self.installed.environment.fingerprint
        records = tuple(r for r in Journal(self.folder).read().records if r.environment.fingerprint == fingerprint)
        return Side(name, records)

    @property
    def boots(self) -> int:
        """Boots that gave a number and were alone on their cores."""
        return self._count(alone=True)

    @property
    def disturbed(self) -> int:
        """Boots that gave a number and were not."""
        return self._count(alone=False)

    def _count(self, *, alone: bool) -> int:
        measured = [r for r in self.side("").records if isinstance(r.outcome, MeasuredOutcome)]
        busy = {r.boot for r in measured if isinstance(r.outcome, MeasuredOutcome) and is_disturbed(r.outcome.warnings)}
        return len({r.boot for r in measured} - busy) if alone else len(busy)


@dataclass(frozen=True, slots=True)
class _Notes(StudyObserver):
    """Whom a boot waits for, and no more: what came out of it is said in one line."""

    console: Console

    def note(self, text: str) -> None:
        """One line on stderr."""
        self.console.print(text, markup=False, highlight=False, soft_wrap=True)


def run_ci(check: Check) -> int:
    """Measure, judge, report; returns the exit code.

    Raises:
        InputError: no such config, baseline or metric; both kinds of baseline were given.
        TrialFault: no boot gave a number.

    """
    if check.baseline is not None and check.against is not None:
        raise InputError("--baseline and --against exclude each other: the baseline is recorded, or booted now")
    require_metrics(check.metrics)
    began = time.monotonic()
    judgement, faults, name = run_loop(_check(check))
    _report(check, name, judgement, faults, time.monotonic() - began)
    return 1 if judgement.standing == "regression" else 0


async def _check(check: Check) -> tuple[Judgement, list[str], str]:
    config = load_study(check.config)
    folder = check.results or Path("results") / "local-ci" / config.name
    ours = Measured(config, await look_at(config), folder if check.against is None else folder / "candidate")
    theirs = None
    if check.against is not None:
        other = load_study(check.against)
        theirs = Measured(other, await look_at(other), folder / "base")
    looks = 2 if check.max_boots > check.boots and not check.no_run else 1
    bounds = tuple(bound.metric for bound in config.objective.constraints)
    rules = Rules(
        metrics=tuple(dict.fromkeys(check.metrics or (config.objective.metric, *bounds))),
        effect=check.effect,
        looks=looks,
        false_alarms=check.false_alarms,
        across=check.across or theirs is not None,
        both_grow=theirs is not None,
    )
    fixed = None if theirs is not None else side_of(check.baseline or _BASELINE)
    if not check.no_run:
        await _boot(ours, theirs, check.boots)
    judgement = _look(ours, theirs, fixed, rules)
    if looks == 2 and judgement.standing == "undecided" and (judgement.boots_wanted or 0) > _had(ours, theirs):
        pilot = judgement.boots_had
        await _boot(ours, theirs, min(judgement.boots_wanted or 0, check.max_boots))
        judgement = _look(ours, theirs, fixed, rules, pilot)
    return judgement, _faults([one for one in (ours, theirs) if one is not None]), config.name


async def _boot(ours: Measured, theirs: Measured | None, boots: int) -> None:
    """Until there are so many boots that were alone; two sides take turns, AB BA AB, so that a drift hits both alike.

    On a machine that is never quiet it ends after twice as many.
    """
    console = Console(stderr=True)

    def say(_done: int, records: tuple[Record, ...]) -> None:
        seconds = sum(record.duration_s for record in records)
        failed = [r.outcome.fault for r in records if r.outcome.kind == "failed"]
        console.print(f"boot: {seconds:.1f} s of load{', failed: ' + failed[0] if failed else ''}", highlight=False)

    had = ours.boots + ours.disturbed  # of an earlier run that goes on
    for turn in range(had, max(_TRIES * boots, had)):
        if _had(ours, theirs) >= boots:
            break
        for side in [ours] if theirs is None else [theirs, ours] if turn % 2 == 0 else [ours, theirs]:
            await measure_boots(side.config, side.installed, side.folder, 1, say, observer=_Notes(console))


def _had(ours: Measured, theirs: Measured | None) -> int:
    """Boots to judge by, or rounds of two."""
    return ours.boots if theirs is None else count_rounds(theirs.side(""), ours.side(""))


def _look(ours: Measured, theirs: Measured | None, fixed: Side | None, rules: Rules, pilot: int = 0) -> Judgement:
    if ours.boots + ours.disturbed == 0:
        faults = _faults([ours])
        said = faults[0] if faults else f"nothing is recorded in {ours.folder}"
        raise TrialFault("exited", f"no boot gave a number: {said}", stage="boot")
    side = ours.side(str(ours.folder))
    base = theirs.side(str(theirs.folder)) if theirs is not None else fixed
    assert base is not None
    sides = undisturbed_rounds(base, side) if theirs is not None else (undisturbed(base), undisturbed(side))
    neighbours = neighbours_of(base, sides[0], side), neighbours_of(side, sides[1], base)
    return replace(judge(*sides, rules, pilot), neighbours=neighbours)


def _faults(sides: Sequence[Measured]) -> list[str]:
    return [
        f"{record.trial.workload.name}: {record.outcome.fault} in {record.outcome.stage}: {record.outcome.message}"
        for side in sides
        for record in side.side("").records
        if record.outcome.kind == "failed"
    ]


def _report(check: Check, name: str, judgement: Judgement, faults: Sequence[str], duration_s: float) -> None:
    title = f"{name}: {judgement.boots_had} boots against {check.against or check.baseline or _BASELINE}"
    if check.junit is not None:
        write_junit(check.junit, name, judgement, faults, duration_s)
    markdown = summary_markdown(title, judgement, faults)
    for place in (check.summary, os.environ.get("GITHUB_STEP_SUMMARY")):
        if place:
            append_summary(Path(place), markdown)
    if os.environ.get("GITHUB_ACTIONS") == "true" and not check.as_json:
        print("\n".join(github_commands(f"dsabench {name}", judgement)))
    if check.as_json:
        found = {
            "standing": judgement.standing,
            "sentence": judgement.sentence,
            "boots": judgement.boots_had,
            "boots_wanted": judgement.boots_wanted,
            "disturbed": dict(zip(("baseline", "candidate"), map(asdict, judgement.neighbours), strict=True)),
            "verdicts": [verdict.model_dump() for verdict in judgement.verdicts],
            "failed": list(faults),
        }
        print(json.dumps(found))
        return
    console = Console()
    console.print(VerdictTable(judgement.verdicts, title))
    console.print(judgement.sentence, markup=False, highlight=False)
