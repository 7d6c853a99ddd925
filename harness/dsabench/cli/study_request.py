"""The command line of a command that measures a study."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from dsabench.config.specs import StudyConfig
from dsabench.errors import InputError

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

    def apply(self, config: StudyConfig) -> StudyConfig:
        """The config with the command line's limits in place of its own.

        Raises:
            InputError: flags that contradict each other, or leave no boot for the search.

        """
        self._require_one_wish()
        given = {"max_trials": self.max_trials, "max_boots": self.max_boots, "time_s": self.time_s}
        limits = {name: value for name, value in given.items() if value is not None}
        confirm_boots = config.boots_to_confirm
        if self.max_boots is not None and self.max_boots <= confirm_boots:
            raise InputError(
                f"--max-boots {self.max_boots} leaves no boot for the search: the confirmation takes {confirm_boots} "
                "(budget.confirm_boots a side)"
            )
        limited = config.model_copy(update={"budget": config.budget.model_copy(update=limits)})
        return with_launch_env(limited, self.launch_env)

    def folder(self, config: StudyConfig) -> Path:
        """Where the study's journal lies."""
        return self.results or Path("results") / config.name

    def tables(self, config: StudyConfig) -> Path:
        """Where its table is written: beside its journal, unless told otherwise."""
        return self.out or self.folder(config) / "tables"

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


def with_launch_env(config: StudyConfig, pairs: Sequence[str]) -> StudyConfig:
    """The config with these variables in its runtime's `launch.env`.

    Raises:
        InputError: a pair that is no NAME=VALUE.

    """
    if not pairs:
        return config
    given = dict(_pair(text) for text in pairs)
    launch = config.runtime.launch
    changed = launch.model_copy(update={"env": MappingProxyType({**launch.env, **given})})
    return config.model_copy(update={"runtime": config.runtime.model_copy(update={"launch": changed})})


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name.isidentifier():
        raise InputError("--launch-env: wants NAME=VALUE, such as PYTHONPATH=/opt/sglang")  # the value may be a secret
    return name, value
