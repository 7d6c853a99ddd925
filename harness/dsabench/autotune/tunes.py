"""The stages that make tables: each measures what its rule needs, and writes the table if it may be a default."""

from __future__ import annotations

from pathlib import Path

from dsabench.autotune.job import Job, Outcome, tuned_study
from dsabench.autotune.stages import TUNES, StageName, StageState
from dsabench.config.specs import HisparseTune, KernelTune, MtpTune, StudyConfig, Tune
from dsabench.emit.fit import require_emittable
from dsabench.emit.tables import write_table
from dsabench.errors import InputError
from dsabench.kernelbench.conductor import run_bench
from dsabench.kernelbench.request import KernelBenchRequest, TimingLimits
from dsabench.kernelbench.table import TABLE_NAME
from dsabench.model.runtime import RuntimeSpec
from dsabench.model.tuned_table import TunedTable
from dsabench.reporting.choice_plot import draw_choice
from dsabench.results.journal import claim_folder
from dsabench.runtimes.protocol import AttentionShape
from dsabench.signals import run_loop
from dsabench.tuners.hisparse import host_bytes_of, plan_hisparse, pool_of
from dsabench.tuners.hisparse import table_of as hisparse_table
from dsabench.tuners.kernel_bench import KernelBench
from dsabench.tuners.kernel_table import study_kernels
from dsabench.tuners.mha_threshold import Standing, plan_threshold, propose
from dsabench.tuners.mtp import ACCEPT_RATE, plan_mtp
from dsabench.tuners.mtp import table_of as mtp_table
from dsabench.tuners.observed import kernel_candidates, of_kernels
from dsabench.tuners.of_sweep import TunePlan
from dsabench.tuners.target import target_of


def plan_tune(job: Job, tune: Tune, winner: RuntimeSpec | None) -> TunePlan:
    """Put the tuner's arithmetic into its study.

    Raises:
        InputError: the study does not fit the tune, or nothing fits into the memory.

    """
    study = tuned_study(job.config, tune, winner)
    if isinstance(tune, KernelTune):
        return TunePlan(study)
    if isinstance(tune, HisparseTune):
        host_bytes = host_bytes_of(study, tune.memory.host_memory_gib, job.lanes)
        return plan_hisparse(study, pool_of(study, gpus=tune.memory.gpus), host_bytes)
    if isinstance(tune, MtpTune):
        return plan_mtp(study, ACCEPT_RATE if tune.accept_rate is None else tune.accept_rate)
    return plan_threshold(study)


def run_tune(job: Job, stage: StageName, tune: Tune, winner: RuntimeSpec | None) -> Outcome:
    """Measure, decide, and write or remove the table.

    Raises:
        InputError: as `plan_tune`, or the runtime refuses the settings.
        TrialFault: no worker could measure kernels.

    """
    plan = plan_tune(job, tune, winner)
    if isinstance(tune, KernelTune):
        return _tune_kernels(job, tune, plan.config)
    study = job.study(plan.config, stage)
    result = study.run(job.observer.study(plan.config.objective.metric))
    command = job.command_of(stage)
    if isinstance(tune, HisparseTune):
        table, says = hisparse_table(study.config, result, command)
    elif isinstance(tune, MtpTune):
        table, _, _, says = mtp_table(study.config, result, study.folder, tune.accept_rate, command)
    else:
        proposal = propose(study.config, result, command)
        table, says = proposal.table, f"{proposal.standing}: {proposal.reason}"
    kind = TUNES[stage]
    if result.unconfirmed:
        return _without_table(job, kind, "open", says, result.measured_now)
    return _settle(job, kind, table, says, result.measured_now)


def _tune_kernels(job: Job, tune: KernelTune, config: StudyConfig) -> Outcome:
    target = target_of(config)
    folder = job.own / "kernels"
    bench = _measure_kernels(job, tune, config, target, folder)
    if bench.left:
        says = f"{bench.left} kernel times are left; the same command measures them"
        return _without_table(job, "flashmla_auto", "open", says, bench.measured)
    seen = of_kernels(folder / TABLE_NAME, target)
    found = study_kernels(config, target, seen, (), command=job.command_of("flashmla-auto"))
    gains = found.tuned.gains
    says = (
        f"{found.tuned.chosen.family.name}, {gains.weighted:+.1%} of sparse attention's speed against the shipped rule, "
        f"over {found.tuned.shapes} shapes"
    )
    outcome = _settle(job, "flashmla_auto", found.table, says, bench.measured)
    for path in outcome.files:
        draw_choice(found.batches, found.table, Path(path).with_suffix(".svg"))
    return outcome


def _measure_kernels(
    job: Job, tune: KernelTune, config: StudyConfig, target: AttentionShape, folder: Path
) -> KernelBench:
    launch, kernels = config.runtime.launch, tune.kernels
    python = launch.python or ("python3" if target.runtime == "sglang" else None)
    if launch.container is not None or launch.command_prefix:
        raise InputError(
            "runtime.launch starts the runtime elsewhere: measure there (dsabench kernels bench sparse_prefill --dtypes fp8), "
            f"with --results {folder}"
        )
    request = KernelBenchRequest(
        "bench",
        operators=("sparse_prefill",),
        candidates=kernel_candidates(target),
        shapes=kernels.shapes or (f"*-h{target.heads_per_rank}-*",),
        dtypes=("fp8",),
        budget_s=kernels.time_s,
        limits=TimingLimits(half_width=kernels.spread),
    )
    bench = KernelBench(request, folder)

    lines = run_bench(request, python, bench.known, launch.env)
    with claim_folder(folder):
        try:
            run_loop(job.observer.kernels(request, python, lines, bench.hear))
        finally:
            bench.tabulate()
    return bench


def _settle(job: Job, kind: str, table: TunedTable | None, says: str, measured: int) -> Outcome:
    """Write the table if it may be a default; else say why it may not."""
    if table is None:
        return _without_table(job, kind, "refused" if says.startswith(_REFUSED) else "done", says, measured)
    try:
        require_emittable(table, table.runtime, allow_simulated=False)
    except InputError as error:
        why = str(error).removeprefix(f"{table.file_name}: ")
        return _without_table(job, kind, "refused", f"{says}; no table: {why}", measured)
    _remove_tables(job, kind)
    path = write_table(job.tables, table)
    return Outcome("done", says, measured, files=(str(path),))


_REFUSED: tuple[Standing, ...] = ("refused by the gate", "accuracy unproven")


def _without_table(job: Job, kind: str, state: StageState, says: str, measured: int) -> Outcome:
    _remove_tables(job, kind)
    return Outcome(state, says, measured)


def _remove_tables(job: Job, kind: str) -> None:
    """An earlier run may have had other settings."""
    for file in job.tables.glob(f"{kind},*"):
        file.unlink()
