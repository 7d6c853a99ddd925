"""A tuned `flashmla_auto` rule as a table with its evidence."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from dsabench.config.specs import StudyConfig
from dsabench.model.tuned_table import TableEvidence, TunedTable
from dsabench.runtimes.protocol import AttentionShape
from dsabench.tuners.flashmla_auto import Case, Tuned, tune, weigh
from dsabench.tuners.observed import Observations, Observed
from dsabench.tuners.prefill_mix import Step, steps_of
from dsabench.tuners.target import attention_groups, shipped_rule


@dataclass(frozen=True, slots=True)
class ChunkGain:
    """The rule under one chunked_prefill_size of a rank."""

    chunk: int
    gain: float
    regret: float


@dataclass(frozen=True, slots=True)
class KernelStudy:
    """What was fitted to what, and the table."""

    table: TunedTable
    tuned: Tuned
    chunks: tuple[ChunkGain, ...]
    points: tuple[Observed, ...]

    @property
    def batches(self) -> list[tuple[int, int, float]]:
        """New tokens, KV tokens, and time of flashmla_kv over time of flashmla_sparse, of each point."""
        return [(*point.step, point.us["flashmla_kv"] / point.us["flashmla_sparse"]) for point in self.points]


def study_kernels(
    config: StudyConfig,
    target: AttentionShape,
    seen: Observations,
    servers: Iterable[Observed],
    *,
    command: str,
) -> KernelStudy:
    """Fit one rule for all chunk sizes of the config together, and say what it gains under each."""
    points = (*seen.points, *servers)
    mixes = {chunk: mix_of(config, chunk) for chunk in chunks_of(config)}
    tuned = tune(points, _together(mixes.values()), shipped_rule(seen.device))
    fitted = tuple(replace(point, held_out=False) for point in points)
    chunks = tuple(_gain_of(chunk, mix, tuned, fitted, seen.device) for chunk, mix in mixes.items())
    table = TunedTable(
        kind="flashmla_auto",
        runtime=target.runtime,
        device=seen.device,
        heads_per_rank=target.heads_per_rank,
        index_topk=target.index_topk,
        kv_cache_dtype="fp8_e4m3",
        rule=tuned.chosen.rule,
        evidence=_evidence(tuned, seen, points, command),
    )
    return KernelStudy(table, tuned, chunks, points)


def case_of(config: StudyConfig, seen: Observations) -> Case:
    """All timed shapes, those that the fit does not see too, with the weights of the config's prefill batches."""
    mix = _together(mix_of(config, chunk) for chunk in chunks_of(config))
    return Case(seen.points, weigh(seen.points, mix), shipped_rule(seen.device))


def _together(mixes: Iterable[Mapping[Step, float]]) -> dict[Step, float]:
    together: dict[Step, float] = {}
    for mix in mixes:
        for step, share in mix.items():
            together[step] = together.get(step, 0.0) + share
    return together


def chunks_of(config: StudyConfig) -> list[int]:
    """Chunk sizes that a rank sees: the base's and those of the axis, over the groups of DP attention."""
    base = config.runtime.base
    values = {base.get("chunked_prefill_size")}
    values |= {v for axis in config.space.axes if axis.name == "chunked_prefill_size" for v in axis.values}
    groups = attention_groups(config.runtime.base)
    return sorted({v // groups for v in values if isinstance(v, int) and v > 0}) or [0]


def mix_of(config: StudyConfig, chunk: int) -> dict[Step, float]:
    """The batches that one rank gets of the workloads; a chunk of 0 is none."""
    groups = attention_groups(config.runtime.base)
    shared = [
        load.model_copy(update={"max_concurrency": max(1, load.max_concurrency // groups)})
        if load.max_concurrency
        else load
        for load in config.workloads
    ]
    return dict(steps_of(shared, chunk or None))


def _gain_of(chunk: int, mix: dict[Step, float], tuned: Tuned, points: tuple[Observed, ...], device: str) -> ChunkGain:
    case = Case(points, weigh(points, mix), shipped_rule(device))
    kernels = case.kernels(tuned.chosen.rule)
    return ChunkGain(chunk, -case.mean(case.slower(kernels)), case.mean(case.lost(kernels)))


def _evidence(tuned: Tuned, seen: Observations, points: tuple[Observed, ...], command: str) -> TableEvidence:
    new = [point.step.new_tokens for point in points]
    kv = [point.step.kv_tokens for point in points]
    servers = sum(point.source == "server" for point in points)
    return TableEvidence(
        label="measured",
        versions=dict(seen.versions),
        samples_sha256=seen.sha256,
        regret=round(tuned.chosen.regret, 5),
        regret_shipped=round(tuned.regret_shipped, 5),
        regret_static=round(tuned.regret_static, 5),
        gains=tuned.gains,
        metric="time of sparse attention in prefill",
        n=tuned.shapes,
        command=command,
        conditions=(
            f"prefill batches of {min(new)} to {max(new)} new tokens with {min(kv)} to {max(kv)} in the KV cache",
            "no context parallelism",
            *((f"{servers} of the points are throughputs of servers",) if servers else ()),
        ),
    )
