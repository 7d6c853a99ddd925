"""A tuned default as the runtime reads it: runtime, device and shape, the rule, and the evidence.

One file per table, named like the runtime's own tuned MoE configs (`key=value,….json`).
"""

from __future__ import annotations

import bisect
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, PositiveInt, model_validator

from dsabench.model.value import FrozenMap, KnobValue, Value
from dsabench.model.verdict import VerdictWord

SparseKernel = Literal["flashmla_sparse", "flashmla_kv"]
_LONGEST_NAME = 100
"""Characters of a device's name at most, so that the whole key fits a file name."""


def _nameable(device: str) -> str:
    """Check that the name can be part of a file name."""
    if not device.isascii() or not device.isprintable() or set(device) & set(" /\\,"):
        raise ValueError("a GPU's name as the runtime says it, spaces as underscores: NVIDIA_H200")
    return device


class ConstantRule(Value):
    """Always the same kernel."""

    form: Literal["constant"] = "constant"
    kernel: SparseKernel


class RatioRule(Value):
    """`flashmla_sparse` if Σ kv tokens < ratio × Σ new tokens of the batch, else `flashmla_kv`.

    This is the form of the runtime's own rule, whose ratio is 512 (sglang 0.5.23 dsa_backend.py:4093).
    """

    form: Literal["ratio"] = "ratio"
    kv_per_new_token: float = Field(gt=0)
    from_new_tokens: PositiveInt | None = None
    """Batches with fewer new tokens take `flashmla_kv`; None sets no such limit."""


class GridRule(Value):
    """One kernel per cell of new tokens × kv tokens.

    `new_tokens` and `kv_tokens` are the inclusive lower edges of the cells, ascending. A value below the first edge
    belongs to the first cell. `kernels[i][j]` is the cell (new i, kv j).
    """

    form: Literal["grid"] = "grid"
    new_tokens: tuple[int, ...] = Field(min_length=1)
    kv_tokens: tuple[int, ...] = Field(min_length=1)
    kernels: tuple[tuple[SparseKernel, ...], ...]

    @model_validator(mode="after")
    def _fits(self) -> GridRule:
        if any(list(edges) != sorted(set(edges)) for edges in (self.new_tokens, self.kv_tokens)):
            raise ValueError("edges must ascend")
        shape_fits = len(self.kernels) == len(self.new_tokens)
        if not shape_fits or any(len(row) != len(self.kv_tokens) for row in self.kernels):
            raise ValueError("kernels must be len(new_tokens) rows of len(kv_tokens)")
        return self


class ThresholdRule(Value):
    """Dense MHA prefill up to this many tokens of the longest sequence in the batch."""

    form: Literal["threshold"] = "threshold"
    max_tokens: int = Field(ge=0)


class BufferRule(Value):
    """HiSparse buffers. Slots are tokens per request."""

    form: Literal["buffer"] = "buffer"
    device_buffer_size: int = Field(gt=0)
    host_to_device_ratio: int = Field(gt=0)
    swap_in_block_size: int | None = Field(None, ge=1, le=1024)


class StepsRule(Value):
    """Draft steps of multi-token prediction from a batch size on, up to the next one."""

    form: Literal["steps"] = "steps"
    batch_sizes: tuple[PositiveInt, ...] = Field(min_length=1)
    """Requests that decode at once, ascending."""
    candidates: tuple[tuple[int, ...], ...]
    """For each, the steps among which the runtime may move with the accept length; 0 drafts nothing."""
    steps: tuple[int, ...]
    """For each, those that are best at the accept length of the evidence."""

    @model_validator(mode="after")
    def _fits(self) -> StepsRule:
        if list(self.batch_sizes) != sorted(set(self.batch_sizes)):
            raise ValueError("batch_sizes must ascend")
        if not len(self.batch_sizes) == len(self.candidates) == len(self.steps):
            raise ValueError("candidates and steps need one entry for each batch size")
        for best, candidates in zip(self.steps, self.candidates, strict=True):
            if best not in candidates or min(candidates) < 0:
                raise ValueError("steps must be among the candidates, which count from 0")
        return self

    def adaptive_config(self) -> dict[str, dict[str, list[int]]]:
        """As sglang's `--speculative-adaptive-config` reads it, 0.5.14 and later."""
        pairs = zip(self.batch_sizes, self.candidates, strict=True)
        return {str(batch): {"candidate_steps": list(candidates)} for batch, candidates in pairs}


class LaunchRule(Value):
    """With which settings a rank is launched. DP attention divides some of them: a deployment asks for as many times more."""

    form: Literal["launch"] = "launch"
    strategy: str = Field(pattern=r"^(tp|dp|ep)\d+(,(tp|dp|ep)\d+)*$")
    """How the deployment spreads over its GPUs, as `dsabench slice --strategy` takes it: `dp8,ep8`."""
    settings: FrozenMap[KnobValue] = Field(min_length=1)
    """Of one rank: knob → value, of those that differ from what the runtime gives it by itself."""
    instead_of: FrozenMap[KnobValue] = Field(default_factory=dict)
    """What the runtime gives it, of the same knobs as far as the study's base says them."""

    @property
    def groups(self) -> int:
        """Groups of DP attention of its strategy."""
        return next((int(word[2:]) for word in self.strategy.split(",") if word.startswith("dp")), 1)


KernelRule = ConstantRule | RatioRule | GridRule
Rule = Annotated[
    ConstantRule | RatioRule | GridRule | ThresholdRule | BufferRule | StepsRule | LaunchRule,
    Field(discriminator="form"),
]


class GateEvidence(Value):
    """One accuracy eval of tuned and default setting, on real weights."""

    eval: str
    measure: Literal["score", "agreement"] = "score"
    """`agreement`: answers equal to the default's own, right or wrong."""
    verdict: VerdictWord
    margin: float
    """Accepted loss of accuracy; 0.01 is one point."""
    difference: float | None = None
    """Accuracy of the tuned setting minus the default's."""
    ci_low: float | None = None
    n: int | None = None
    """Questions that both sides answered."""

    @property
    def passed(self) -> bool:
        """Whether the tuned setting is proven to be not less accurate."""
        return self.verdict in ("better", "no difference")


class ShapeGains(Value):
    """The gain of a kernel rule over the shipped one, in speed, over the shapes that were timed: 0.1 is 10 % more done in the time.

    The shapes were chosen, not drawn, so there is no interval over them.
    """

    weighted: float
    """By the prefill batches of the workloads; cross-validated. The others are under the rule itself, as fitted to all shapes."""
    least: float
    median: float
    effective_shapes: float
    """As many shapes of equal weight would count as much: 1 / Σ weight²."""
    slower_shapes: int
    """Shapes that are slower than under the shipped rule by more than the noise of their times."""


class TableEvidence(Value):
    """Why the rule is believed, and under which conditions."""

    label: Literal["measured", "simulated", "shipped"]
    """`shipped` is a default that nobody tuned; `simulated` depends on values of random weights."""
    versions: FrozenMap[str] = Field(default_factory=dict)
    """Package → version of the measurement (runtime, kernel package, torch, driver)."""
    samples_sha256: str | None = None
    """sha256 of the raw data."""
    regret: float | None = None
    """Mean relative time lost compared with the best kernel per shape, cross-validated."""
    regret_shipped: float | None = None
    """The same for the rule that the runtime ships."""
    gains: ShapeGains | None = None
    """Of a table that was fitted to kernel times."""
    effect: float | None = None
    """The gain over the default, relative, of a table that comes from a sweep: under the workload where it is least."""
    ci_low: float | None = None
    ci_high: float | None = None
    """Upper end of the interval of the gain over the shipped rule, relative, of a table that comes from a sweep. It has the level of
    Holm's correction over the workloads and metrics, which is 95 % or more.
    """
    regret_static: float | None = None
    """The same for the best single kernel."""
    metric: str | None = None
    """The metric of the gain: `kernel time`, or a metric of a server."""
    n: int | None = None
    """Shapes, or boots per side."""
    gates: tuple[GateEvidence, ...] = ()
    """Accuracy evals, if the rule changes numerics."""
    command: str | None = None
    """The command that measures it again."""
    conditions: tuple[str, ...] = ()
    """Further conditions in plain words."""


FORMS: dict[str, tuple[str, ...]] = {
    "flashmla_auto": ("constant", "ratio", "grid"),
    "mha_threshold": ("threshold",),
    "hisparse": ("buffer",),
    "mtp": ("steps",),
    "launch": ("launch",),
}


class TunedTable(Value):
    """One tuned default. The first six fields are its key and make its file name."""

    schema_version: Literal[1] = 1
    kind: Literal["flashmla_auto", "mha_threshold", "hisparse", "mtp", "launch"]
    runtime: Literal["sglang", "reference"]
    device: Annotated[str, Field(min_length=1, max_length=_LONGEST_NAME), AfterValidator(_nameable)]
    """Name of the device in the runtime, with underscores for spaces: `NVIDIA_H200`; `CPU` without an accelerator."""
    heads_per_rank: int = Field(gt=0)
    index_topk: int = Field(gt=0)
    kv_cache_dtype: Literal["bfloat16", "fp8_e4m3"]
    rule: Rule
    evidence: TableEvidence

    @model_validator(mode="after")
    def _form_fits_kind(self) -> TunedTable:
        allowed = FORMS[self.kind]
        if self.rule.form not in allowed:
            raise ValueError(f"rule.form of a {self.kind} table is {' or '.join(allowed)}")
        return self

    @property
    def changes_numerics(self) -> bool:
        """Whether answers may differ from the shipped default: dense attention, although the model was trained sparse."""
        return isinstance(self.rule, ThresholdRule) and self.rule.max_tokens > self.index_topk

    @property
    def file_name(self) -> str:
        """Such as `flashmla_auto,H=128,topk=2048,device_name=NVIDIA_H200,kv_dtype=fp8_e4m3.json`."""
        # A strategy is part of the key, as the heads of a rank are the same with 2 and with 8 groups.
        rule = self.rule
        kind = f"{self.kind},strategy={rule.strategy.replace(',', '-')}" if isinstance(rule, LaunchRule) else self.kind
        return table_file_name(kind, self.heads_per_rank, self.index_topk, self.device, self.kv_cache_dtype)


def table_file_name(kind: str, heads_per_rank: int, index_topk: int, device: str, kv_cache_dtype: str) -> str:
    """The file name under which a runtime looks for a table."""
    return f"{kind},H={heads_per_rank},topk={index_topk},device_name={device},kv_dtype={kv_cache_dtype}.json"


def choose(rule: KernelRule, *, new_tokens: int, kv_tokens: int) -> SparseKernel:
    """The kernel for a batch with Σ new tokens and Σ kv tokens (prefix and new), counted as sglang 0.5.23 does."""
    if isinstance(rule, ConstantRule):
        return rule.kernel
    if isinstance(rule, RatioRule):
        enough = new_tokens >= (rule.from_new_tokens or 1)
        return "flashmla_sparse" if enough and kv_tokens < rule.kv_per_new_token * new_tokens else "flashmla_kv"
    return rule.kernels[_cell(rule.new_tokens, new_tokens)][_cell(rule.kv_tokens, kv_tokens)]


def choose_auto(rule: KernelRule, kv_cache_dtype: KnobValue | None, *, new_tokens: int, kv_tokens: int) -> SparseKernel:
    """What `flashmla_auto` takes for a batch: it has a choice with an fp8 cache alone."""
    if kv_cache_dtype != "fp8_e4m3":
        return "flashmla_sparse"
    return choose(rule, new_tokens=new_tokens, kv_tokens=kv_tokens)


def _cell(lower_edges: tuple[int, ...], value: int) -> int:
    return max(0, bisect.bisect_right(lower_edges, value) - 1)
