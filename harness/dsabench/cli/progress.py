"""Progress of a sweep, on stderr: a live display on a terminal, one line per event elsewhere."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Column

from dsabench.model.record import Failed, Record, Scored
from dsabench.reporting.numbers import show_duration, show_figure
from dsabench.study.next_boot import BootPlan
from dsabench.study.plan import StudyPlan
from dsabench.study.session import PlannedTrial, StudyObserver

_LABEL = 40
"""Characters of a bar's label."""
_COUNTED = re.compile(r"(.+?)[,:]? (?:shard )?(\d+) of (\d+)")
"""A step of a boot that counts: weights by shard, CUDA graphs, compiled kernels."""


def say_record(record: Record, metric: str) -> str:
    """One line per record: workload, objective, median TTFT and ITL; or the failure."""
    outcome, name = record.outcome, record.trial.workload.name
    if isinstance(outcome, Failed):
        return f"{name}: FAILED in {outcome.stage}: {outcome.fault}: {outcome.message.splitlines()[0][:160]}"
    if isinstance(outcome, Scored):
        return f"{name}: score {outcome.metrics['score'].value:.4f} ({record.duration_s:.1f} s)"
    named = ((metric, f"{metric} {{}}"), ("ttft_ms.p50", "TTFT p50 {} ms"), ("itl_ms.p50", "ITL p50 {} ms"))
    shown = [words.format(show_figure(outcome.metrics[key].value)) for key, words in named if key in outcome.metrics]
    # What nothing limits, or what cannot be told, is no news.
    limit = f"; limited by {found.words}" if (found := record.bottleneck) is not None and found.binds else ""
    return f"{name}: {', '.join(shown)} ({record.duration_s:.1f} s){limit}"


def _eta(plan: StudyPlan) -> str:
    """Such as `about 2 min 10 s left`."""
    return f"about {show_duration(plan.seconds_left)} left{'' if plan.cost.measured else ' (assumed)'}"


@dataclass(slots=True)
class LineProgress(StudyObserver):
    """One line per event with the seconds since the start, for logs and CI."""

    console: Console
    metric: str
    started_s: float = field(default_factory=time.monotonic)
    lane: str = ""
    """Which lane writes; empty without lanes."""
    _told: str = ""

    def boot_planned(self, boot: BootPlan, plan: StudyPlan) -> None:
        """The number of the boot, and its purpose."""
        self._line(f"boot {plan.boots_done + 1}/{plan.boots_total} {boot.phase}: {boot.label}, {_eta(plan)}")

    def setting_planned(self, boot: BootPlan) -> None:
        """The setting that the running server gets."""
        self._line(f"same boot, {boot.phase}: {boot.label}")

    def boot_progress(self, text: str) -> None:
        """Print each kind of step once. A counter is only useful on a live display."""
        kind = re.sub(r"[\d.,]+", "#", text)
        if kind != self._told:
            self._told = kind
            self._line(f"  {text[:160]}")

    def boot_ready(self, seconds: float) -> None:
        """Duration of the boot."""
        self._line(f"  ready after {seconds:.1f} s")

    def record_written(self, record: Record) -> None:
        """The outcome."""
        self._line(f"  {say_record(record, self.metric)}")

    def note(self, text: str) -> None:
        """Print it unchanged."""
        self.console.print(text, markup=False, highlight=False, soft_wrap=True)

    def for_lane(self, number: int) -> StudyObserver:
        """Lines with the number of the lane."""
        return LineProgress(self.console, self.metric, self.started_s, f"lane {number}: ")

    def _line(self, text: str) -> None:
        elapsed_s = time.monotonic() - self.started_s
        self.console.print(f"[{elapsed_s:6.1f} s] {self.lane}{text}", markup=False, highlight=False, soft_wrap=True)


@dataclass(slots=True)
class BarProgress(StudyObserver):
    """A bar for the boots and one for the requests of the current trial; finished trials scroll above."""

    console: Console
    metric: str
    started_s: float = field(default_factory=time.monotonic)
    _progress: Progress = field(init=False)
    _boots: TaskID = field(init=False)
    _requests: TaskID = field(init=False)

    def __post_init__(self) -> None:
        columns = (
            SpinnerColumn(),
            # A fixed width: what a boot says of itself must not move the bars.
            TextColumn("{task.description}", table_column=Column(width=_LABEL, no_wrap=True, overflow="ellipsis")),
            BarColumn(bar_width=20),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
        )
        self._progress = Progress(*columns, console=self.console, transient=True)
        self._boots = self._progress.add_task("boots", total=None)
        self._requests = self._progress.add_task("", total=None, visible=False)

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def boot_planned(self, boot: BootPlan, plan: StudyPlan) -> None:
        """Update the bar of boots. The first boot starts the display, because lanes must be forked before its thread
        exists.
        """
        self._progress.start()
        self._progress.console.print(f"[bold]{boot.phase}[/bold] {escape(boot.label)}", highlight=False)
        self._progress.update(
            self._boots, completed=plan.boots_done, total=plan.boots_total, description=f"boots · {_eta(plan)}"
        )

    def setting_planned(self, boot: BootPlan) -> None:
        """The setting that the running server gets."""
        self._progress.console.print(f"[bold]{boot.phase}[/bold] {escape(boot.label)} (same boot)", highlight=False)

    def boot_progress(self, text: str) -> None:
        """Show the step of the boot instead of the bar of requests, as a bar if the text counts (`CUDA graphs 3 of 20`)."""
        counted = _COUNTED.fullmatch(text)
        if counted is None:
            self._show(escape(text))
        else:
            step, done, total = counted.groups()
            self._show(escape(step), int(done), int(total))

    def boot_ready(self, seconds: float) -> None:
        """Show it instead of the bar of requests."""
        self._show(f"ready after {seconds:.1f} s")

    def trial_started(self, trial: PlannedTrial) -> None:
        """Reset the bar of requests."""
        workload = trial.trial.workload
        self._progress.reset(
            self._requests, total=workload.num_prompts, description=escape(workload.name), visible=True
        )

    def requests_done(self, done: int, total: int) -> None:
        """Advance the bar of requests."""
        self._progress.update(self._requests, completed=done, total=total)

    def record_written(self, record: Record) -> None:
        """Print the outcome above the bars."""
        style = "red" if isinstance(record.outcome, Failed) else None
        line = escape(say_record(record, self.metric))
        self._progress.console.print(f"  {line}", style=style, highlight=False, soft_wrap=True)
        self._progress.update(self._requests, visible=False)

    def note(self, text: str) -> None:
        """Print it above the bars."""
        self._progress.console.print(text, markup=False, highlight=False, soft_wrap=True)

    def for_lane(self, number: int) -> StudyObserver:
        """Several processes cannot share a live display, so they write lines."""
        return LineProgress(self.console, self.metric, self.started_s, f"lane {number}: ")

    def _show(self, text: str, done: int = 0, total: int | None = None) -> None:
        self._progress.update(self._requests, description=text, total=total, completed=done, visible=True)


def make_progress(metric: str) -> StudyObserver:
    """Bars on a terminal, lines elsewhere."""
    console = Console(stderr=True)
    return BarProgress(console, metric) if console.is_terminal else LineProgress(console, metric)


@contextmanager
def counting(what: str) -> Iterator[Callable[[int, int], None]]:
    """A bar that is told how many are done, and of how many; it goes away at the end. Nothing where stderr is no terminal."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task(what, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)
