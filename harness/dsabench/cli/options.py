"""Options that several commands share, and the command that continues a run."""

from __future__ import annotations

import dataclasses
import inspect
import math
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, TypeVar, get_type_hints

import typer

from dsabench.cli.format import parse_duration_s, parse_latency_ms
from dsabench.errors import InputError, StoreError

if TYPE_CHECKING:
    from dsabench.config.specs import StudyConfig
    from dsabench.distributed.ray_cluster import RayCluster
    from dsabench.model.study_result import StudyResult
    from dsabench.study.session import StudyObserver
    from dsabench.study.starter import FirstStudy
    from dsabench.study.study import Study

_PLANNED_FOR = "h200"
"""Hardware of a plan that is made where no GPU is."""
_MARGIN = 1.2
"""Factor on the estimated time in the command that continues a run: boots vary."""

Options = TypeVar("Options")


@dataclass(frozen=True)
class StartOptions:
    """What takes the place of a config file: a model, a machine and a goal."""

    model: Annotated[
        str | None,
        typer.Option(
            help="A model such as deepseek-ai/DeepSeek-V3.2 or glm-5, its folder, or small (reference model, no GPU)."
        ),
    ] = None
    gpus: Annotated[int | None, typer.Option(min=1, help="GPUs to serve it on.", show_default="those here")] = None
    hardware: Annotated[
        str | None, typer.Option(help="h200, b300, mi355x, …, or sm_100-180gib.", show_default="what is here")
    ] = None
    goal: Annotated[
        str, typer.Option(help="max-throughput (or throughput), max-throughput-under-slo, min-latency (or latency).")
    ] = "throughput"
    ttft_p90: Annotated[
        float | None,
        typer.Option(parser=parse_latency_ms, metavar="LATENCY", help="Limit of the time to first token: 3s."),
    ] = None
    tpot_p90: Annotated[
        float | None,
        typer.Option(parser=parse_latency_ms, metavar="LATENCY", help="Limit of the time per output token: 50ms."),
    ] = None
    e2e_p90: Annotated[
        float | None,
        typer.Option(parser=parse_latency_ms, metavar="LATENCY", help="Limit of the whole time of a request: 30s."),
    ] = None
    input_len: Annotated[
        int | None, typer.Option(min=1, help="Tokens of a prompt.", show_default="a chat and a document load")
    ] = None
    output_len: Annotated[int | None, typer.Option(min=1, help="Tokens of an answer.", show_default="as above")] = None
    python: Annotated[
        str | None, typer.Option(help="Interpreter that has sglang.", show_default="python3 on the PATH")
    ] = None

    def first_study(self) -> FirstStudy:
        """The study that is wanted; what is not given is taken from this machine.

        Raises:
            InputError: there is no such goal.

        """
        from dsabench.machine.environment import collect_hardware
        from dsabench.signals import run_loop
        from dsabench.study.starter import FirstStudy, goal_named, hardware_here

        limits = {"ttft_p90_ms": self.ttft_p90, "tpot_p90_ms": self.tpot_p90, "e2e_p90_ms": self.e2e_p90}
        given = {key: limit for key, limit in limits.items() if limit is not None}
        here: tuple[str | None, int] = None, 0
        if self.hardware is None or self.gpus is None:
            here = hardware_here(run_loop(collect_hardware()))
        if self.hardware is None and here[0] is None and self.gpus is not None:
            here = _PLANNED_FOR, 0
            print(f"note: no known GPU is in this machine; planned for {_PLANNED_FOR} (--hardware)", file=sys.stderr)
        return FirstStudy(
            model=self.model or "",
            hardware=self.hardware or here[0],
            gpus=self.gpus or here[1],
            goal=goal_named(self.goal, given),
            limits_ms=given,
            input_len=self.input_len,
            output_len=self.output_len,
            python=self.python,
        )


RayAddress = Annotated[
    str | None,
    typer.Option(help="Address of the Ray cluster.", show_default="the cluster of this machine, or Ray on it alone"),
]
RayLabels = Annotated[
    list[str] | None,
    typer.Option(metavar="KEY=VALUE", help="Take only nodes with this label, such as ray.io/node-group=h200."),
]
LaunchEnv = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME=VALUE", help="Set a variable of runtime.launch.env, such as a PYTHONPATH."),
]
LaunchArgs = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME[=VALUE]", help="Set an argument of sglang that is no knob, such as hicache_ratio=2."),
]


Executor = Literal["local", "ray"]


@dataclass(frozen=True, slots=True)
class StudyOptions:
    """The options of `sweep`. A tune that sweeps adds its own.

    Each field is an option; its annotation tells typer how to read it. `--help` keeps the order of the fields.
    """

    verb: ClassVar[tuple[str, ...]] = ("sweep",)
    """The words after `dsabench`."""
    decides: ClassVar[tuple[str, ...]] = ("max_trials", "max_boots", "confirm_boots", "launch_arg")
    """Fields that change what is measured. Others (places, lanes) are not needed to repeat a study."""

    config: Annotated[str, typer.Argument(help="A config: a YAML file, or a name in configs/.")]
    results: Annotated[Path | None, typer.Option(help="Folder of the journal.", show_default="results/NAME")] = None
    max_trials: Annotated[int | None, typer.Option(min=1, help="Maximum number of search trials.")] = None
    max_boots: Annotated[int | None, typer.Option(min=1, help="Maximum number of boots.")] = None
    budget: Annotated[
        float | None,
        typer.Option(
            parser=parse_duration_s,
            metavar="DURATION",
            help="Time limit of this run: 90s, 30m, 1h30m. The verdict then uses what was measured.",
        ),
    ] = None
    gpu_hours: Annotated[
        float | None,
        typer.Option(min=0.01, help="Limit of GPU-hours, those of earlier runs included.", metavar="HOURS"),
    ] = None
    confirm_boots: Annotated[int | None, typer.Option(min=0, help="Boots per side that confirm the best setting.")] = (
        None
    )
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the plan and its estimated time; start nothing.")
    ] = False
    again: Annotated[bool, typer.Option("--again", help="Measure everything once more, as a new round.")] = False
    conclude: Annotated[
        bool,
        typer.Option("--conclude", help="Give the verdict from existing records. Boots nothing and needs no runtime."),
    ] = False
    lanes: Annotated[
        int, typer.Option(min=1, max=64, help="Servers at the same time, each on an equal share of the GPUs and cores.")
    ] = 1
    executor: Annotated[
        Executor, typer.Option(help="Where servers boot: here, or on the machines of a Ray cluster.")
    ] = "local"
    ray_address: RayAddress = None
    ray_label: RayLabels = None
    launch_env: LaunchEnv = None
    launch_arg: LaunchArgs = None
    optuna_storage: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Mirror the search for optuna-dashboard, such as sqlite:///study.db."),
    ] = None
    shared: Annotated[
        bool,
        typer.Option(
            "--shared",
            help="Measure together with other machines that run this with the same --optuna-storage (PostgreSQL).",
        ),
    ] = False
    copy_to: Annotated[
        str | None,
        typer.Option(
            metavar="URL", help="Keep a copy of the records and samples at an fsspec path: s3://bucket/study, sftp:// …"
        ),
    ] = None
    json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout; progress on stderr.")] = False

    def study(self, config: StudyConfig | None = None) -> Study:
        """Make the study: of the named config, or of `config`, which was derived from it.

        Raises:
            InputError: there is no such config, or flags contradict each other.

        """
        from dsabench.study.postgresql import require_postgresql
        from dsabench.study.study import Study

        against = [flag for flag, given in (("--again", self.again), ("--dry-run", self.dry_run)) if given]
        if self.conclude and against:
            raise InputError(f"--conclude and {against[0]} exclude each other: --conclude uses only existing records")
        if self.shared:
            require_postgresql(self.optuna_storage)
        self.cluster()
        return Study.from_config(
            config or self.config,
            results=self.results,
            lanes=self.lanes,
            again=self.again,
            launch_env=self.launch_env or (),
            launch_args=self.launch_arg or (),
            shared_in=self.optuna_storage if self.shared else None,
            **self.limits(),
        )

    def cluster(self) -> RayCluster | None:
        """Where servers boot; None for this machine."""
        return ray_cluster(self.executor, self.ray_address, self.ray_label)

    def limits(self) -> dict[str, Any]:
        """What replaces the limits of the config, as `Study.from_config` takes it."""
        return {
            "max_trials": self.max_trials,
            "max_boots": self.max_boots,
            "time_s": self.budget,
            "gpu_hours": self.gpu_hours,
            "confirm_boots": self.confirm_boots,
        }

    def study_command(self) -> str:
        """The command that repeats the same study on any machine: without places and lanes."""
        return shlex.join(self._words(self.decides))

    def resume_command(self) -> str:
        """The command that continues: without `--again`, which would start a new round, and without `--conclude`."""
        once = {"config", "dry_run", "again", "conclude"}
        return shlex.join(self._words(field.name for field in dataclasses.fields(self) if field.name not in once))

    def _words(self, names: Any) -> list[str]:
        """The command with those options that differ from their defaults."""
        return ["dsabench", *self.verb, *([self.config] if self.config else []), *flags_of(self, names)]


def ray_cluster(executor: Executor, address: str | None, labels: Sequence[str] | None) -> RayCluster | None:
    """The cluster that the options name; None where they name none.

    Raises:
        InputError: an option of a cluster without one, or a label that is no KEY=VALUE.

    """
    if executor == "ray":
        from dsabench.distributed.ray_cluster import RayCluster, parsed_labels

        return RayCluster(address, parsed_labels(labels or ()))
    for flag, given in (("--ray-address", address), ("--ray-label", labels)):
        if given:
            raise InputError(f"{flag} goes with --executor ray")
    return None


def flags_of(options: Any, names: Iterable[str]) -> list[str]:
    """The flags of those options that differ from their defaults."""
    words: list[str] = []
    defaults = {field.name: field.default for field in dataclasses.fields(options)}
    for name in names:
        value, flag = getattr(options, name), f"--{name.replace('_', '-')}"
        if value is None or value == defaults[name]:
            continue
        unit = {"budget": "s", "ttft_p90": "ms", "tpot_p90": "ms", "e2e_p90": "ms"}.get(name)
        for one in value if isinstance(value, list) else [value]:
            words += [flag] if one is True else [flag, f"{one:g}{unit}" if unit else str(one)]
    return words


def command_of(options: type[Options], run: Callable[[Options], int]) -> Callable[..., None]:
    """Make a typer command: parameters from the fields of `options`, help from `run`, exit code from the result of
    `run`.
    """
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

    # A paragraph in one line: the terminal decides where it breaks.
    paragraphs = inspect.cleandoc(run.__doc__ or "").split("\n\n")
    command.__doc__ = "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return command


@contextmanager
def resume_hint(command: Callable[[], str]) -> Iterator[None]:
    """After an interrupt or a full disk, print the command that continues. Ctrl-C exits with 130."""
    from dsabench.signals import ignore_interrupts

    try:
        yield
    except KeyboardInterrupt:
        ignore_interrupts()
        print(f"interrupted; everything measured is kept. Continue with:\n  {command()}", file=sys.stderr)
        raise typer.Exit(130) from None
    except StoreError as error:
        raise StoreError(f"{error}. When that is fixed, continue with: {command()}") from error


def run_study(options: StudyOptions, study: Study) -> StudyResult:
    """Run, resume, or only conclude; progress goes to stderr."""
    from dsabench.cli.progress import make_progress
    from dsabench.results.journal import Journal

    progress = make_progress(study.config.objective.metric)
    if options.conclude:
        return study.conclude(progress)
    if options.optuna_storage is not None:
        from dsabench.study.optuna_mirror import OptunaMirror

        progress = OptunaMirror(progress, study.config, study.folder, options.optuna_storage, shared=options.shared)
    journal = Journal(study.folder)
    before = len(journal.read().records)

    def command() -> str:
        # A new round without a record does not exist yet, so it must be started again.
        begun = len(journal.read().records) > before
        return options.resume_command() + (" --again" if options.again and not begun else "")

    with resume_hint(command), _copied(study.folder, options.copy_to, progress):
        cluster = options.cluster()
        return study.run(progress) if cluster is None else study.run_on(cluster, progress)


def _copied(folder: Path, url: str | None, progress: StudyObserver) -> AbstractContextManager[None]:
    """A copy of the folder that is kept while the context is open; nothing without a place for it."""
    if url is None:
        return nullcontext()
    from dsabench.results.remote import kept_copy

    return kept_copy(folder, url, progress.note)


def go_on(options: StudyOptions, result: StudyResult) -> str | None:
    """The command that measures the rest, with more time if there was too little for a single boot; None if nothing is
    left.
    """
    if not result.left.boots:
        return None
    if options.conclude or result.measured_now:
        return options.resume_command()
    return replace(options, budget=float(math.ceil(_MARGIN * result.left.seconds))).resume_command()
