"""The command line of a command that measures a study."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from dsabench.config.specs import StudyConfig
from dsabench.errors import InputError
from dsabench.study.study import Study

Flags = Iterable[tuple[str, object]]


@dataclass(frozen=True, slots=True)
class Request:
    """The command line of `sweep`, or of a `tune` that sweeps."""

    config: str
    results: Path | None
    max_trials: int | None
    max_boots: int | None
    time_s: float | None
    dry_run: bool
    again: bool
    as_json: bool
    conclude: bool = False
    """Say what the records come to; boot nothing."""
    verb: tuple[str, ...] = ("sweep",)
    """The words behind `dsabench` that got here."""
    launch_env: tuple[str, ...] = ()
    """NAME=VALUE each: the same study on another installation, with the same command to the server."""
    lanes: int = 1
    """Boots at once."""
    own: tuple[tuple[str, object], ...] = ()
    """The verb's own flags that decide what is measured, with their values; True for a flag that takes none."""
    out: Path | None = None
    """Folder of the table that a tune writes."""

    def study(self, config: StudyConfig | None = None) -> Study:
        """The study that is asked for, of the config that is named or of what was made of it.

        Raises:
            InputError: no such config, or flags that contradict each other.

        """
        self._require_one_wish()
        return Study.from_config(
            config or self.config,
            results=self.results,
            lanes=self.lanes,
            again=self.again,
            max_trials=self.max_trials,
            max_boots=self.max_boots,
            time_s=self.time_s,
            launch_env=self.launch_env,
        )

    def tables(self, study: Study) -> Path:
        """Where its table is written: beside its journal, unless told otherwise."""
        return self.out or study.folder / "tables"

    def study_command(self) -> str:
        """What measures the same study anew, wherever: no places, and nothing of how this machine is used."""
        return shlex.join(self._words(self._limits()))

    def resume_command(self) -> str:
        """What to type to go on: the same command without `--again`, which would start anew, and `--conclude`."""
        places: Flags = (
            ("--results", self.results),
            *self._limits(),
            ("--budget", None if self.time_s is None else f"{self.time_s:g}s"),
            ("--lanes", None if self.lanes == 1 else self.lanes),
            ("--out", self.out),
            *(("--launch-env", pair) for pair in self.launch_env),
        )
        return shlex.join(self._words(places) + (["--json"] if self.as_json else []))

    def _limits(self) -> Flags:
        return ("--max-trials", self.max_trials), ("--max-boots", self.max_boots), *self.own

    def _words(self, flags: Flags) -> list[str]:
        given = [[flag] if value is True else [flag, str(value)] for flag, value in flags if value is not None]
        return ["dsabench", *self.verb, self.config, *(word for words in given for word in words)]

    def _require_one_wish(self) -> None:
        against = [flag for flag, given in (("--again", self.again), ("--dry-run", self.dry_run)) if given]
        if self.conclude and against:
            raise InputError(
                f"--conclude asks the records alone, and {against[0]} what is not measured: take one of them"
            )
