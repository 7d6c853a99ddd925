"""Progress of an autotune, on stderr: one line per stage around the progress of its boots."""

from __future__ import annotations

from dataclasses import dataclass

from dsabench.autotune.job import AutotuneObserver, Lines
from dsabench.autotune.stages import StageName, StageRecord
from dsabench.cli.kernel_progress import Hear, KernelProgress, follow, say, say_point
from dsabench.cli.progress import make_progress
from dsabench.kernelbench.conductor import WorkerLine
from dsabench.kernelbench.request import KernelBenchRequest
from dsabench.reporting.numbers import show_duration
from dsabench.study.session import StudyObserver


@dataclass(slots=True)
class AutotuneProgress(AutotuneObserver):
    """Lines of stages; what a stage boots has the display of a sweep."""

    wanted: tuple[StageName, ...]

    def stage_started(self, name: StageName) -> None:
        """Number and name of the stage."""
        number = self.wanted.index(name) + 1
        say(f"== {number}/{len(self.wanted)} {name}")

    def stage_ended(self, record: StageRecord) -> None:
        """State, time and outcome of the stage."""
        took = f" after {show_duration(record.seconds)}" if record.seconds >= 1 else ""
        say(f"== {record.stage}: {record.state}{took}: {record.says}")

    def study(self, metric: str) -> StudyObserver:
        """As in a sweep."""
        return make_progress(metric)

    async def kernels(self, request: KernelBenchRequest, python: str | None, lines: Lines, hear: Hear) -> None:
        """As in `kernels bench`."""
        progress = KernelProgress(request, python)

        def say_and_hear(said: WorkerLine) -> None:
            if said["is"] == "point":
                say_point(said, progress.count(said))
            hear(said)

        await follow(lines, progress, say_and_hear)
