"""What an eval shows while it runs: a bar on a terminal, a line now and then elsewhere. All on stderr."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

from dsabench.evals.run import Progress as EvalProgress
from dsabench.reporting.numbers import show_duration

_LINE_EVERY_S = 10.0


def say_progress(at: EvalProgress) -> str:
    """`score 0.951, about 40 s left, 3 retries`."""
    words = [f"score {at.score:.3f}"]
    if at.left_s is not None and at.done < at.total:
        words.append(f"about {show_duration(at.left_s)} left")
    if at.retries:
        words.append(f"{at.retries} retries")
    return ", ".join(words)


@dataclass(slots=True)
class LineEvalProgress:
    """A line every ten seconds and at the end: for logs and CI."""

    console: Console
    name: str
    said_s: float = field(default_factory=time.monotonic)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def resumed(self, count: int) -> None:
        """An earlier run left samples."""
        self._line(f"{self.name}: going on after {count} finished samples")

    def show(self, at: EvalProgress) -> None:
        """One more sample is done."""
        now_s = time.monotonic()
        if at.done == at.total or now_s - self.said_s >= _LINE_EVERY_S:
            self.said_s = now_s
            self._line(f"{self.name}: {at.done}/{at.total}, {say_progress(at)}")

    def _line(self, text: str) -> None:
        self.console.print(text, markup=False, highlight=False, soft_wrap=True)


@dataclass(slots=True)
class BarEvalProgress:
    """A bar with the running score and the time left."""

    console: Console
    name: str
    _bar: Progress = field(init=False)
    _task: TaskID = field(init=False)

    def __post_init__(self) -> None:
        columns = (
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=20),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
        )
        self._bar = Progress(*columns, console=self.console, transient=True)
        self._task = self._bar.add_task(self.name, total=None)

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def resumed(self, count: int) -> None:
        """An earlier run left samples."""
        self._bar.console.print(f"going on after {count} finished samples", markup=False, highlight=False)

    def show(self, at: EvalProgress) -> None:
        """One more sample is done."""
        words = f"{self.name}: {say_progress(at)}"
        self._bar.update(self._task, completed=at.done, total=at.total, description=words)


def make_eval_progress(console: Console, name: str) -> LineEvalProgress | BarEvalProgress:
    """Live on a terminal, plain elsewhere."""
    return BarEvalProgress(console, name) if console.is_terminal else LineEvalProgress(console, name)
