"""Progress of an autotune, on stderr: one line per stage around the progress of its boots."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass, field

from dsabench.autotune.job import AutotuneObserver
from dsabench.autotune.stages import StageChoice, StageName, StageRecord
from dsabench.cli.format import show_duration
from dsabench.cli.kernel_progress import say, say_point
from dsabench.cli.progress import make_progress
from dsabench.microbench.worker_process import Said
from dsabench.study.session import StudyObserver


@dataclass(slots=True)
class AutotuneProgress(AutotuneObserver):
    """Lines of stages; what a stage boots has the display of a sweep."""

    wanted: StageChoice
    started_s: float = field(default_factory=time.monotonic)
    _points: int = 0
    _done: int = 0

    def stage_started(self, name: StageName) -> None:
        """Number and name of the stage."""
        number = self.wanted.names.index(name) + 1
        print(f"== {number}/{len(self.wanted.names)} {name}", file=sys.stderr, flush=True)

    def stage_ended(self, record: StageRecord) -> None:
        """State, time and outcome of the stage."""
        took = f" after {show_duration(record.seconds)}" if record.seconds >= 1 else ""
        say(f"== {record.stage}: {record.state}{took}: {record.says}")

    def study(self, metric: str) -> StudyObserver:
        """As in a sweep."""
        return make_progress(metric)

    def kernel(self, said: Said) -> None:
        """One line per kernel time."""
        if said["is"] == "begin":
            self._points, self._done = int(str(said["points"])), 0
            say(f"{self._points} kernel times to measure")
        elif said["is"] == "point" and said.get("status") != "unavailable":
            self._done += 1
            say_point(said, f"{self._done}/{max(self._done, self._points)} ")


def make_autotune_progress(wanted: StageChoice) -> AutotuneObserver:
    """The progress of a run."""
    return AutotuneProgress(wanted)
