"""`dsabench tune flashmla-auto|mha-threshold|hisparse|mtp|launch CONFIG`: from measurements to tuned tables."""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar

import typer

from dsabench.cli.options import StudyOptions, command_of, run_study

if TYPE_CHECKING:
    from dsabench.model.study_result import StudyResult
    from dsabench.model.tuned_table import TunedTable
    from dsabench.study.study import Study
    from dsabench.tuners.hisparse import HitRate
    from dsabench.tuners.kernel_table import KernelStudy
    from dsabench.tuners.mtp import Slot, StepCost
    from dsabench.tuners.of_sweep import CurvePoint, TunePlan

app = typer.Typer(help="From measurements to tuned tables.", no_args_is_help=True)


@dataclass(frozen=True, slots=True)
class FlashmlaAutoOptions:
    """The options of `tune flashmla-auto`."""

    config: Annotated[str, typer.Argument(help="A config: a YAML file, or a name in configs/.")]
    kernels: Annotated[Path, typer.Option(help="Folder that `kernels bench` wrote.")] = Path("results/local-kernels")
    study: Annotated[
        Path | None, typer.Option(help="A sweep's results: servers measured under both kernels.", show_default=False)
    ] = None
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Folder of the table.", show_default="results/NAME/tables")
    ] = None
    json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False

    @property
    def command(self) -> str:
        """The command that repeats the tuning."""
        words = ["dsabench", "tune", "flashmla-auto", self.config, "--kernels", str(self.kernels)]
        study = ["--study", str(self.study)] if self.study else []
        return shlex.join([*words, *study])


def flashmla_auto(options: FlashmlaAutoOptions) -> int:
    """Learn which of the two sparse prefill kernels is faster for a batch, and write that rule as a table.

    Several forms of the rule are fitted to measured kernel times and cross-validated. The simplest one within the
    noise wins.
    """
    from dsabench.config.load import load_study
    from dsabench.emit.tables import write_table
    from dsabench.kernelbench.table import TABLE_NAME
    from dsabench.reporting.choice_plot import draw_choice
    from dsabench.results.journal import FILE_NAME, read_journal
    from dsabench.tuners.kernel_table import study_kernels
    from dsabench.tuners.observed import of_kernels, of_servers
    from dsabench.tuners.target import target_of

    config = load_study(options.config)
    target = target_of(config)
    seen = of_kernels(options.kernels / TABLE_NAME, target)
    records = read_journal(options.study / FILE_NAME).records if options.study is not None else ()
    servers = of_servers(records, target)
    study = study_kernels(config, target, seen, servers, command=options.command)
    path = write_table(options.out or Path("results") / config.name / "tables", study.table)
    plot = draw_choice(study.batches, study.table, path.with_suffix(".svg"))
    if options.json:
        print(json.dumps({"table": str(path), "plot": str(plot), **_kernel_facts(study)}, indent=1))
    else:
        _show_kernels(study, path)
    return 0


@dataclass(frozen=True, slots=True)
class TuneOptions(StudyOptions):
    """The options of every tune that sweeps."""

    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Folder of the table.", show_default="tables, next to the journal"),
    ] = None


@dataclass(frozen=True, slots=True)
class ThresholdOptions(TuneOptions):
    """The options of `tune mha-threshold`."""

    verb: ClassVar[tuple[str, ...]] = ("tune", "mha-threshold")


def mha_threshold(options: ThresholdOptions) -> int:
    """Sweep the threshold (or continue), then let the eval gate decide; exit 1 if it refuses.

    Above index_topk dense attention changes answers. Without a passed eval on real weights the table is marked as
    unproven, and `emit` refuses it. An unfinished confirmation gives verdicts but no table.
    """
    from dsabench.config.load import load_study
    from dsabench.tuners.mha_threshold import KNOB, plan_threshold, propose
    from dsabench.tuners.of_sweep import curve_of

    def judge(study: Study, result: StudyResult) -> _Tuned:
        proposal = propose(study.config, result, options.study_command())
        curve = curve_of(result.records, KNOB, study.config.objective.metric)
        gates = [verdict for one in result.passed_over for verdict in one.accuracy] + [*result.gates]
        facts = {
            "standing": proposal.standing,
            "reason": proposal.reason,
            "curve": [{"workload": p.workload, KNOB: p.value, "median": p.median, "boots": p.boots} for p in curve],
            "gates": [gate.model_dump() for gate in gates],
        }
        said = f"{proposal.standing}: {proposal.reason}"
        refused = proposal.standing == "refused by the gate"
        return _Tuned(said, proposal.table, facts, lambda: _print_curve(study, curve), code=1 if refused else 0)

    return _tune(options, plan_threshold(load_study(options.config)), judge)


@dataclass(frozen=True, slots=True)
class HisparseOptions(TuneOptions):
    """The options of `tune hisparse`."""

    verb: ClassVar[tuple[str, ...]] = ("tune", "hisparse")
    decides: ClassVar[tuple[str, ...]] = ("max_trials", "max_boots", "gpus", "host_memory_gib", "same_pool")

    gpus: Annotated[int, typer.Option(min=1, help="GPUs that share the experts of the full deployment.")] = 8
    host_memory_gib: Annotated[
        float | None,
        typer.Option(help="Host memory for each rank.", show_default="what is free, shared by the ranks here"),
    ] = None
    same_pool: Annotated[
        bool,
        typer.Option("--same-pool", help="All settings in the smallest of their device pools, not each in its own."),
    ] = False


def hisparse(options: HisparseOptions) -> int:
    """Compare HiSparse's buffer, ratio and block size with HiSparse off (bf16, fp8) and with its own defaults.

    Each setting gets the device pool that a full rank has under it. The arithmetic is printed, and refused if host
    memory is too small. An unfinished confirmation gives verdicts but no table.
    """
    from dsabench.config.load import load_study
    from dsabench.tuners.hisparse import hit_rates, host_bytes_of, plan_hisparse, pool_of, table_of

    def judge(study: Study, result: StudyResult) -> _Tuned:
        table, standing = table_of(study.config, result, options.study_command())
        rates = hit_rates(result.records)
        return _Tuned(standing, table, {"hit_rates": [asdict(one) for one in rates]}, lambda: _print_hits(rates))

    config = load_study(options.config)
    # A conclusion from records ignores this machine's memory.
    host_bytes = math.inf if options.conclude else host_bytes_of(config, options.host_memory_gib, options.lanes)
    plan = plan_hisparse(config, pool_of(config, gpus=options.gpus), host_bytes, same_pool=options.same_pool)
    return _tune(options, plan, judge)


@dataclass(frozen=True, slots=True)
class MtpOptions(TuneOptions):
    """The options of `tune mtp`."""

    verb: ClassVar[tuple[str, ...]] = ("tune", "mtp")
    decides: ClassVar[tuple[str, ...]] = (*StudyOptions.decides, "accept_rate")

    accept_rate: Annotated[
        float | None,
        typer.Option(min=0.0, max=1.0, help="Share of drafts that text has accepted.", show_default="as measured"),
    ] = None


def mtp(options: MtpOptions) -> int:
    """Measure what draft steps cost at each batch size, and write the steps that are worth it as a schedule.

    The workloads' max_concurrency are the batch sizes. With random weights or a pinned accept length the costs hold all the same;
    --accept-rate then says what text accepts.
    """
    from dsabench.config.load import load_study
    from dsabench.tuners.mtp import ACCEPT_RATE, plan_mtp, table_of

    def judge(study: Study, result: StudyResult) -> _Tuned:
        command = options.study_command()
        table, costs, slots, standing = table_of(study.config, result, study.folder, options.accept_rate, command)
        facts = {"costs": [asdict(one) for one in costs], "schedule": [asdict(one) for one in slots]}
        return _Tuned(standing, table, facts, lambda: _print_steps(costs, slots))

    rate = ACCEPT_RATE if options.accept_rate is None else options.accept_rate
    return _tune(options, plan_mtp(load_study(options.config), rate), judge)


@dataclass(frozen=True, slots=True)
class LaunchTuneOptions(TuneOptions):
    """The options of `tune launch`."""

    verb: ClassVar[tuple[str, ...]] = ("tune", "launch")


def launch(options: LaunchTuneOptions) -> int:
    """Find the chunk, memory and running requests that a rank should be launched with.

    Begins with what should fit. The table holds for the GPU, the heads of a rank and the strategy; `emit TABLE --as command --config
    DEPLOYMENT` makes flags of it, `--as text` the words for a maintainer.
    """
    from dsabench.config.load import load_study
    from dsabench.tuners.launch import plan_launch, table_of

    def judge(study: Study, result: StudyResult) -> _Tuned:
        table, standing = table_of(study.config, result, options.study_command())
        return _Tuned(standing, table)

    return _tune(options, plan_launch(load_study(options.config)), judge)


app.command("flashmla-auto")(command_of(FlashmlaAutoOptions, flashmla_auto))
app.command("mha-threshold")(command_of(ThresholdOptions, mha_threshold))
app.command("hisparse")(command_of(HisparseOptions, hisparse))
app.command("mtp")(command_of(MtpOptions, mtp))
app.command("launch")(command_of(LaunchTuneOptions, launch))


@dataclass(frozen=True, slots=True)
class _Tuned:
    """What a study comes to."""

    standing: str
    """One line."""
    table: TunedTable | None
    facts: Mapping[str, object] = field(default_factory=dict)
    """More for programs."""
    show: Callable[[], None] = lambda: None
    """More for people."""
    code: int = 0


def _tune(options: TuneOptions, plan: TunePlan, judge: Callable[[Study, StudyResult], _Tuned]) -> int:
    """Run or continue the study, judge it, and write its table next to the journal, or where `--out` says."""
    from dsabench.cli.show_result import exit_code, print_plan_of, show_result, study_facts
    from dsabench.emit.tables import write_table

    for line in () if options.json or options.conclude else plan.arithmetic:
        print(line)
    study = options.study(plan.config)
    if options.dry_run:
        print_plan_of(
            options, study, {"standing": "nothing was measured", "table": None, "arithmetic": list(plan.arithmetic)}
        )
        return 0
    result = run_study(options, study)
    tuned = judge(study, result)
    path = None if tuned.table is None else write_table(options.out or study.folder / "tables", tuned.table)
    if options.json:
        said = {
            "standing": tuned.standing,
            "table": path and str(path),
            "arithmetic": list(plan.arithmetic),
            **tuned.facts,
        }
        print(json.dumps({**study_facts(options, study, result), **said}, indent=1))
    else:
        show_result(options, study, result)
        tuned.show()
        _print_standing(options, result, tuned.standing, path)
    return tuned.code or (3 if exit_code(result) == 3 else 0)


def _print_curve(study: Study, curve: Sequence[CurvePoint]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("workload", "threshold (tokens)", study.config.objective.metric, "boots", box=None)
    for point in curve:
        table.add_row(point.workload, f"{point.value:,}", f"{point.median:,.1f}", str(point.boots))
    Console().print(table)


def _print_hits(rates: Sequence[HitRate]) -> None:
    from rich.console import Console
    from rich.table import Table

    if not rates:
        return
    table = Table("workload", "KV cache", "buffer (tokens)", "hit rate", "foreseen", "boots", box=None)
    for one in rates:
        foreseen = "–" if one.foreseen is None else f"{one.foreseen:.3f} from {one.foreseen_from:,}"
        size = f"{one.device_buffer_size:,}"
        table.add_row(one.workload, one.kv_cache_dtype, size, f"{one.measured:.3f}", foreseen, str(one.boots))
    Console().print(table)


def _print_steps(costs: Sequence[StepCost], slots: Sequence[Slot]) -> None:
    """`speed` is that at the accept rate, over the speed without drafts; the arrow marks the best."""
    from rich.console import Console
    from rich.table import Table

    by_batch = {slot.batch: slot for slot in slots}
    table = Table("workload", "batch", "steps", "step (ms)", "cost", "tokens a step", "speed", "boots", box=None)
    for one in costs:
        slot = by_batch[one.batch]
        mark = " ←" if one.steps == slot.best else ""
        figures = (
            f"{one.step_ms:.2f}",
            f"{one.cost:.2f}",
            f"{one.accepted:.2f}",
            f"{slot.speeds[one.steps]:.2f}{mark}",
        )
        table.add_row(one.workload, str(one.batch), str(one.steps), *figures, str(one.boots))
    Console().print(table)


def _print_standing(options: StudyOptions, result: StudyResult, standing: str, path: Path | None) -> None:
    from dsabench.cli.show_result import say_next

    print(standing)
    if path is not None:
        print(f"table: {path}")
    say_next(options, result)


def _kernel_facts(study: KernelStudy) -> Mapping[str, object]:
    tuned = study.tuned
    forms = [
        {
            "form": fit.family.name,
            "parameters": fit.family.parameters,
            "regret": fit.regret,
            "held_out": fit.held_out,
            "worst_against_shipped": fit.worst,
            "rule": json.loads(fit.rule.model_dump_json()),
        }
        for fit in tuned.fits
    ]
    return {
        "chosen": tuned.chosen.family.name,
        "forms": forms,
        "regret_shipped": tuned.regret_shipped,
        "regret_best_static": tuned.regret_static,
        "best_static": tuned.static,
        "gain_over_shipped": tuned.gains.model_dump(),
        "noise": tuned.noise,
        "shapes": tuned.shapes,
        "chunks": [{"chunked_prefill_size": c.chunk, "less_time": c.gain, "regret": c.regret} for c in study.chunks],
    }


def _show_kernels(study: KernelStudy, path: Path) -> None:
    from rich.console import Console
    from rich.table import Table

    from dsabench.emit.pr_body import gains_in_words, rule_in_words

    tuned, console = study.tuned, Console()
    console.print(
        f"{tuned.shapes} shapes, times accurate to ±{tuned.noise:.1%}; time lost compared with the faster kernel:"
    )
    table = Table("form of the rule", "numbers", "cross-validated", "held out", "worst vs shipped", box=None)
    for fit in tuned.fits:
        mark = " ←" if fit is tuned.chosen else ""
        held = "" if fit.held_out is None else f"{fit.held_out:.2%}"
        name, count = fit.family.name + mark, str(fit.family.parameters)
        table.add_row(name, count, f"{fit.regret:.2%}", held, f"{fit.worst:+.2%}")
    table.add_row("what is shipped", "", f"{tuned.regret_shipped:.2%}", "", "")
    table.add_row(f"best static ({tuned.static})", "", f"{tuned.regret_static:.2%}", "", "")
    console.print(table)
    console.print(f"gain over the shipped rule, attention alone: {gains_in_words(tuned.gains, tuned.shapes)}")
    for chunk in study.chunks:
        size = chunk.chunk or "none"
        console.print(f"  chunked_prefill_size {size}: {chunk.gain:+.1%} of its time saved, regret {chunk.regret:.2%}")
    console.print(f"rule: {rule_in_words(tuned.chosen.rule)}")
    console.print(str(path), soft_wrap=True, highlight=False, markup=False)
