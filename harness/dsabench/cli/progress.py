"""What a sweep shows while it runs: a live display on a terminal, one line per event elsewhere. All on stderr."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass, field
from types import TracebackType
from typing import Protocol, Self

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

from dsabench.cli.figures import show_duration, show_figure
from dsabench.model.record import Failed, Record, Scored
from dsabench.study.next_boot import BootPlan
from dsabench.study.session import PlannedTrial, Watch


class Forecast(Protocol):
    """What is known of the sweep's length."""

    def boots_done(self) -> int:
        """Boots used in this round."""

    def boots_planned(self) -> int:
        """Boots the round will have used at its end, as far as is known."""

    def left_s(self) -> float | None:
        """Seconds left, None while nothing was measured."""


def say_record(record: Record, metric: str) -> str:
    """One line for one record: workload, the objective, median TTFT and ITL; or why it failed."""
    outcome, name = record.outcome, record.trial.workload.name
    if isinstance(outcome, Failed):
        return f"{name}: FAILED in {outcome.stage}: {outcome.fault}: {outcome.message.splitlines()[0][:160]}"
    if isinstance(outcome, Scored):
        return f"{name}: score {outcome.metrics['score'].value:.4f} ({record.duration_s:.1f} s)"
    named = ((metric, f"{metric} {{}}"), ("ttft_ms.p50", "TTFT p50 {} ms"), ("itl_ms.p50", "ITL p50 {} ms"))
    shown = [words.format(show_figure(outcome.metrics[key].value)) for key, words in named if key in outcome.metrics]
    return f"{name}: {', '.join(shown)} ({record.duration_s:.1f} s)"


def _title(step: BootPlan, forecast: Forecast) -> str:
    left_s = forecast.left_s()
    eta = "" if left_s is None else f", about {show_duration(left_s)} left"
    return f"boot {forecast.boots_done() + 1}/{forecast.boots_planned()} {step.phase}: {step.label}{eta}"


@dataclass(slots=True)
class PlainProgress:
    """A line per event, with the seconds since the start: for logs and CI."""

    console: Console
    metric: str
    forecast: Forecast
    started_s: float = field(default_factory=time.monotonic)
    lane: str = ""
    """Which of several processes speaks."""
    _told: str = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def step(self, step: BootPlan) -> None:
        """A boot begins."""
        self._line(_title(step, self.forecast))

    def watch(self) -> Watch:
        """The hooks for the trials."""
        return Watch(
            on_boot=self._boot,
            on_ready=lambda boot_s: self._line(f"  ready after {boot_s:.1f} s"),
            on_record=lambda record: self._line(f"  {say_record(record, self.metric)}"),
        )

    def _boot(self, text: str) -> None:
        """Each kind of step once: a count that goes up is for those who watch."""
        kind = re.sub(r"[\d.,]+", "#", text)
        if kind != self._told:
            self._told = kind
            self._line(f"  {text[:160]}")

    def _line(self, text: str) -> None:
        elapsed_s = time.monotonic() - self.started_s
        self.console.print(f"[{elapsed_s:6.1f} s] {self.lane}{text}", markup=False, highlight=False, soft_wrap=True)


@dataclass(slots=True)
class LiveProgress:
    """A bar for the boots and one for the requests of the trial that runs; finished trials scroll by above."""

    console: Console
    metric: str
    forecast: Forecast
    _progress: Progress = field(init=False)
    _boots: TaskID = field(init=False)
    _requests: TaskID = field(init=False)

    def __post_init__(self) -> None:
        columns = (
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(bar_width=20),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
        )
        self._progress = Progress(*columns, console=self.console, transient=True)
        self._boots = self._progress.add_task("boots", total=None)
        self._requests = self._progress.add_task("", total=None, visible=False)

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def step(self, step: BootPlan) -> None:
        """A boot begins."""
        done, planned = self.forecast.boots_done(), self.forecast.boots_planned()
        left_s = self.forecast.left_s()
        eta = "" if left_s is None else f" · about {show_duration(left_s)} left"
        self._progress.console.print(f"[bold]{step.phase}[/bold] {escape(step.label)}", highlight=False)
        self._progress.update(self._boots, completed=done, total=planned, description=f"boots{eta}")

    def watch(self) -> Watch:
        """The hooks for the trials."""
        return Watch(
            on_boot=lambda text: self._show(escape(text)),
            on_ready=lambda boot_s: self._show(f"ready after {boot_s:.1f} s"),
            on_trial=self._trial,
            on_requests=lambda done, total: self._progress.update(self._requests, completed=done, total=total),
            on_record=self._record,
        )

    def _show(self, text: str) -> None:
        self._progress.update(self._requests, description=text[:40], total=None, completed=0, visible=True)

    def _trial(self, errand: PlannedTrial) -> None:
        workload = errand.trial.workload
        self._progress.reset(
            self._requests, total=workload.num_prompts, description=escape(workload.name), visible=True
        )

    def _record(self, record: Record) -> None:
        style = "red" if isinstance(record.outcome, Failed) else None
        line = escape(say_record(record, self.metric))
        self._progress.console.print(f"  {line}", style=style, highlight=False, soft_wrap=True)
        self._progress.update(self._requests, visible=False)


def make_progress(console: Console, metric: str, forecast: Forecast) -> PlainProgress | LiveProgress:
    """Live on a terminal, plain elsewhere."""
    return LiveProgress(console, metric, forecast) if console.is_terminal else PlainProgress(console, metric, forecast)
