"""The options that several commands share, declared once, and the command that goes on with a run."""

from __future__ import annotations

import dataclasses
import inspect
import math
import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, TypeVar, get_type_hints

import typer

from dsabench.cli.format import parse_duration_s
from dsabench.errors import InputError, StoreError

if TYPE_CHECKING:
    from dsabench.config.specs import StudyConfig
    from dsabench.model.study_result import StudyResult
    from dsabench.study.study import Study

_MARGIN = 1.2
"""Boots take their time: more than is forecast is asked for."""

Options = TypeVar("Options")


@dataclass(frozen=True, slots=True)
class StudyOptions:
    """The command line of `sweep`; a tune that sweeps adds its own.

    A field is an option, its annotation says how typer reads it. The order here is that of `--help`.
    """

    verb: ClassVar[tuple[str, ...]] = ("sweep",)
    """The words behind `dsabench` that got here."""
    decides: ClassVar[tuple[str, ...]] = ("max_trials", "max_boots")
    """Fields that decide what is measured: with these, and nothing of places or this machine, the same study is measured anew."""

    config: Annotated[str, typer.Argument(help="A sweep's YAML file, or the name of one in configs/.")]
    results: Annotated[Path | None, typer.Option(help="Where the journal lies.", show_default="results/NAME")] = None
    max_trials: Annotated[int | None, typer.Option(min=1, help="Trials of the search, at most.")] = None
    max_boots: Annotated[int | None, typer.Option(min=1, help="Boots in all, at most.")] = None
    budget: Annotated[
        float | None,
        typer.Option(
            parser=parse_duration_s,
            metavar="DURATION",
            help="Time for this run: 90s, 30m, 1h30m. When it is up, what is measured is concluded from.",
        ),
    ] = None
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the plan and its estimated time; start nothing.")
    ] = False
    again: Annotated[bool, typer.Option("--again", help="Measure everything once more, as new occasions.")] = False
    conclude: Annotated[
        bool,
        typer.Option(
            "--conclude", help="Conclude from the records alone, on any machine; ask for no runtime, boot nothing."
        ),
    ] = False
    lanes: Annotated[
        int, typer.Option(min=1, max=64, help="Boots at once, each on an equal share of the GPUs and cores.")
    ] = 1
    launch_env: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="Set a variable of runtime.launch.env, such as a PYTHONPATH."),
    ] = None
    json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout; progress on stderr.")] = False

    def study(self, config: StudyConfig | None = None) -> Study:
        """The study that is asked for, of the config that is named or of what was made of it.

        Raises:
            InputError: no such config, or flags that contradict each other.

        """
        from dsabench.study.study import Study

        against = [flag for flag, given in (("--again", self.again), ("--dry-run", self.dry_run)) if given]
        if self.conclude and against:
            raise InputError(
                f"--conclude asks the records alone, and {against[0]} what is not measured: take one of them"
            )
        return Study.from_config(
            config or self.config,
            results=self.results,
            lanes=self.lanes,
            again=self.again,
            max_trials=self.max_trials,
            max_boots=self.max_boots,
            time_s=self.budget,
            launch_env=self.launch_env or (),
        )

    def study_command(self) -> str:
        """What measures the same study anew, wherever: no places, and nothing of how this machine is used."""
        return shlex.join(self._words(self.decides))

    def resume_command(self) -> str:
        """What to type to go on: the same command without `--again`, which would start anew, and `--conclude`."""
        once = {"config", "dry_run", "again", "conclude"}
        return shlex.join(self._words(field.name for field in dataclasses.fields(self) if field.name not in once))

    def _words(self, names: Any) -> list[str]:
        """The command with those options that were given otherwise than they are by default."""
        words = ["dsabench", *self.verb, self.config]
        defaults = {field.name: field.default for field in dataclasses.fields(self)}
        for name in names:
            value, flag = getattr(self, name), f"--{name.replace('_', '-')}"
            if value is None or value == defaults[name]:
                continue
            for one in value if isinstance(value, list) else [value]:
                words += [flag] if one is True else [flag, f"{one:g}s" if name == "budget" else str(one)]
        return words


def command_of(options: type[Options], run: Callable[[Options], int]) -> Callable[..., None]:
    """A command for typer: its parameters are the fields of the options, its help is that of `run`, its exit code what `run` returns."""
    hints = get_type_hints(options, include_extras=True)
    parameters = [
        inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=inspect.Parameter.empty if field.default is dataclasses.MISSING else field.default,
            annotation=hints[field.name],
        )
        for field in dataclasses.fields(options)  # type: ignore[arg-type]
    ]

    def command(**values: Any) -> None:
        raise typer.Exit(run(options(**values)))

    command.__doc__ = run.__doc__
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return command


@contextmanager
def resume_hint(options: StudyOptions, study: Study) -> Iterator[None]:
    """Where the run is interrupted or the disk is full, the command that goes on; a Ctrl-C ends with 130."""
    from dsabench.results.journal import Journal
    from dsabench.signals import ignore_interrupts

    before = len(Journal(study.folder).read().records)
    try:
        yield
    except KeyboardInterrupt:
        ignore_interrupts()
        # A round of which nothing is recorded yet is not there to go on with.
        begun = len(Journal(study.folder).read().records) > before
        again = " --again" if options.again and not begun else ""
        print(
            f"interrupted; what is measured is kept. Go on with:\n  {options.resume_command()}{again}", file=sys.stderr
        )
        raise typer.Exit(130) from None
    except StoreError as error:
        raise StoreError(f"{error}. When that is mended, go on with: {options.resume_command()}") from error


def run_study(options: StudyOptions, study: Study) -> StudyResult:
    """Run, resume, or only conclude, with progress on stderr."""
    from dsabench.cli.progress import make_progress

    progress = make_progress(study.config.objective.metric)
    if options.conclude:
        return study.conclude(progress)
    with resume_hint(options, study):
        return study.run(progress)


def go_on(options: StudyOptions, result: StudyResult) -> str | None:
    """The command that measures what is left, with more time where there was not enough for a single boot."""
    if not result.left.boots:
        return None
    if options.conclude or result.measured_now:
        return options.resume_command()
    return replace(options, budget=float(math.ceil(_MARGIN * result.left.seconds))).resume_command()
