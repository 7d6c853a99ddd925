"""`dsabench sweep CONFIG`: measure a study and print its verdict."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import typer

from dsabench.cli.options import StartOptions, StudyOptions, flags_of, run_study
from dsabench.errors import InputError, StoreError

if TYPE_CHECKING:
    from dsabench.config.specs import StudyConfig
    from dsabench.study.study import Study


@dataclass(frozen=True)
class SweepOptions(StartOptions, StudyOptions):
    """The options of `sweep`: of a config, or of a model and a goal in its place."""

    decides: ClassVar[tuple[str, ...]] = (
        *(*StudyOptions.decides, "ablate", "proposer", "seed", "no_first"),
        *(field.name for field in fields(StartOptions)),
    )

    config: Annotated[
        str,
        typer.Argument(help="A config: a YAML file, or a name in configs/. Or give --model.", show_default=False),
    ] = ""

    ablate: Annotated[
        bool,
        typer.Option(
            "--ablate", help="Boot the winner without each of its changes too, and drop those that give nothing."
        ),
    ] = False

    proposer: Annotated[
        str | None,
        typer.Option(help="Strategy that chooses settings: gp, tpe, nsga2, grid, random or coordinate."),
    ] = None
    seed: Annotated[int | None, typer.Option(min=0, help="Of the strategy.")] = None
    no_first: Annotated[
        bool, typer.Option("--no-first", help="Leave the config's `first` out: the strategy chooses by itself.")
    ] = False

    def limits(self) -> dict[str, Any]:
        """Those of every study, whether the winner is taken apart, and the strategy."""
        strategy = {"proposer": self.proposer, "seed": self.seed, "first": not self.no_first}
        return {**super().limits(), "ablate": self.ablate, **strategy}

    def study(self, config: StudyConfig | None = None) -> Study:
        """The study of the config, or of one that is made for the model and written beside its journal.

        Raises:
            InputError: neither a config nor a model is named, or both, or flags contradict each other.
            StoreError: the config cannot be written.

        """
        if bool(self.config) == (self.model is not None):
            raise InputError("name a config, such as `dsabench sweep local`, or a model: --model small")
        flags = flags_of(self, [field.name for field in fields(StartOptions)])
        if self.model is None and flags:
            raise InputError(f"{flags[0]} goes with --model; a config contains it")
        return super().study(config if self.model is None else self._made())

    def _made(self) -> StudyConfig:
        from dsabench.config.load import load_study_text
        from dsabench.study.starter import config_text

        wanted = self.first_study()
        folder = self.results or Path("results") / wanted.name
        text = config_text(wanted, self.study_command())
        made = load_study_text(text, folder / "config.yaml")
        if not (self.dry_run or self.conclude):
            try:
                folder.mkdir(parents=True, exist_ok=True)
                (folder / "config.yaml").write_text(text, encoding="utf-8")
            except OSError as error:
                raise StoreError(f"{folder}: {error.strerror}: the config was not written") from error
        return made


def sweep(options: SweepOptions) -> int:
    """Search settings, confirm the best one against the default, print the verdict.

    Each trial is in RESULTS/journal.jsonl as soon as it is measured. A second run continues where the first one
    stopped, and does nothing if everything is measured. Without a config, --model with --gpus and --goal makes one.
    """
    from dsabench.cli.show_result import exit_code, print_plan_of, print_result_of, say_what_it_needs

    study = options.study()
    if options.dry_run:
        print_plan_of(options, study)
        return 0
    result = run_study(options, study)
    print_result_of(options, study, result)
    if not options.json and not options.ablate:
        say_what_it_needs(study, result, replace(options, ablate=True).resume_command())
    return exit_code(result)
