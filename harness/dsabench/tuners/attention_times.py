"""How fast settings should be by the times of their attention kernels: a first guess where nothing was served yet.

Per layer and request: the pieces in which a prompt is prefilled, by the kernels that the setting takes for each; then the answer, token by token,
in a batch of what runs at once; beside them the layer's matrices, at the speed and bandwidth that were measured with the kernels.
Traffic between ranks, the host and the scheduler are left out.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import geometric_mean, median
from typing import NamedTuple

import numpy as np
from scipy.interpolate import RBFInterpolator

from dsabench.config.specs import StudyConfig
from dsabench.errors import InputError
from dsabench.kernelbench.records import KernelMeasurement, shape_of
from dsabench.model.runtime import RuntimeSpec
from dsabench.model.topology import SINGLE
from dsabench.model.tuned_table import choose_auto
from dsabench.model.value import KnobValue
from dsabench.model.workload import Workload
from dsabench.runtimes.kinds import make_runtime
from dsabench.runtimes.protocol import AttentionShape
from dsabench.sglang.model_config import config_json
from dsabench.sglang.models import Widths, widths_of
from dsabench.tuners.observed import CANDIDATES, is_of_rank
from dsabench.tuners.prefill_mix import pieces_of
from dsabench.tuners.target import attention_groups, shipped_rule


class Kernel(NamedTuple):
    """A kernel as the kernel benchmark names it."""

    operator: str
    candidate: str
    dtype: str


_DENSE = {
    "sglang": (Kernel("dense_prefill", "fa3_varlen", "bf16"), Kernel("kv_expand", "torch_mm", "bf16")),
    "reference": (Kernel("dense_prefill", "torch_mha", "bf16"), Kernel("kv_expand", "torch_mm", "bf16")),
}
"""What prefills a short prompt."""
_BESIDE = {
    "sglang": (
        Kernel("indexer_ragged", "deep_gemm", "fp8"),
        Kernel("topk_select", "sgl_kernel", "bf16"),
        Kernel("absorb", "torch_bmm", "bf16"),
    ),
    "reference": (
        Kernel("indexer_ragged", "torch_by_head", "bf16"),
        Kernel("topk_select", "torch_select", "bf16"),
        Kernel("absorb", "torch_bmm", "bf16"),
    ),
}
"""What sparse prefill takes beside its own kernel."""
_PREFILL: dict[str, dict[tuple[str, str], str]] = {
    runtime: {
        **{(str(backend), "fp8"): name for backend, name in CANDIDATES[runtime].items()},
        ("flashmla_sparse", "bf16"): plain,
    }
    for runtime, plain in (("sglang", "flashmla_sparse"), ("reference", "torch_flashmla_sparse"))
}
"""Runtime → backend and cache → candidate."""
_DECODE = {
    "sglang": {
        ("flashmla_kv", "fp8"): "flashmla_kv",
        ("flashmla_sparse", "bf16"): "flashmla_sparse",
        ("fa3", "bf16"): "fa3",
    },
    "reference": _PREFILL["reference"],
}
_USUAL = {"fp8": "flashmla_kv", "bf16": "flashmla_sparse"}
"""Cache → backend where a setting names none."""
_DECODES = "sparse_decode"
_LENGTHS = 4
"""Prompt lengths that stand for a range of them."""
_POINTS_MIN = 4
"""Times of a kernel from which others are interpolated."""


class _NotTimed(Exception):
    """A kernel that a setting takes was timed at too few lengths, or is not known here."""


class ExpectedSpeed:
    """The speed of settings of one study by the kernel times of one folder, those of its hardware."""

    def __init__(self, config: StudyConfig, measured: Sequence[KernelMeasurement]) -> None:
        self._config, self._measured = config, measured
        self._runtime = make_runtime(config.runtime)
        self._loads = [load for load in config.workloads if load.input_len is not None]
        self._widths = _widths(config.runtime.model)
        self._times: dict[AttentionShape, _KernelTimes | None] = {}

    def of(self, spec: RuntimeSpec) -> float | None:
        """Requests per second that the node serves in one layer, in a unit that settings have in common; the geometric mean of the workloads.

        None if a kernel of the setting was not timed, its parallelism or deployment is not worked out here, or no workload has its lengths in the config.
        """
        if not self._loads or spec.topology not in (None, SINGLE) or _is_split(spec.knobs):
            return None
        try:
            shape = self._runtime.attention(spec)
        except InputError:
            return None
        if shape not in self._times:
            self._times[shape] = _KernelTimes.of(self._measured, shape)
        times = self._times[shape]
        if times is None:
            return None
        layer = _Layer(times, spec.knobs, shape, self._widths)
        try:
            return geometric_mean(layer.side_by_side / layer.request_us(load) for load in self._loads)
        except _NotTimed:
            return None


def _widths(model: str) -> Widths | None:
    try:
        return widths_of(config_json(model) or {})
    except InputError:
        return None


@dataclass(frozen=True)
class _KernelTimes:
    """Times of kernels at the widths of one rank, in µs."""

    points: Mapping[Kernel, Mapping[tuple[int, int], float]]
    """Kernel → new tokens of one sequence (of decode: sequences of a step) and KV tokens of each → median time."""
    tb_s: float
    tflop_s: float
    """Bandwidth, and speed of bfloat16 products, that were measured with them."""
    _fits: dict[Kernel, _Fit | None] = field(default_factory=dict)

    @classmethod
    def of(cls, measured: Sequence[KernelMeasurement], shape: AttentionShape) -> _KernelTimes | None:
        """The times at the heads and index_topk of a rank; None if there are none."""
        points: dict[Kernel, dict[tuple[int, int], float]] = {}
        ceilings: list[tuple[float, float]] = []
        for one in measured:
            if one.median_us is None or not is_of_rank(one.shape_id, shape):
                continue
            at, kernel = shape_of(one.shape_id), Kernel(one.operator, one.candidate, one.dtype)
            count, other = (at.batch, at.q_tokens) if kernel.operator == _DECODES else (at.q_tokens, at.batch)
            if other == 1:
                points.setdefault(kernel, {})[count, at.kv_tokens] = one.median_us
            if one.ceiling_tb_s and one.ceiling_tflop_s:
                ceilings.append((one.ceiling_tb_s, one.ceiling_tflop_s))
        if not ceilings:
            return None
        return cls(points, *(median(column) for column in zip(*ceilings, strict=True)))

    def us(self, kernel: Kernel, count: int, kv_tokens: int) -> float:
        """Of one sequence with so many new tokens; of decode: of a step of so many sequences.

        Raises:
            _NotTimed: the kernel was timed at too few lengths.

        """
        if kernel not in self._fits:
            self._fits[kernel] = _Fit.of(self.points.get(kernel, {}))
        fit = self._fits[kernel]
        if fit is None:
            raise _NotTimed
        return fit.us(count, kv_tokens)


@dataclass(frozen=True)
class _Fit:
    """A time as a function of two counts: interpolated in logarithms, and beyond the points as steep as over all of them."""

    varying: tuple[int, ...]
    surface: RBFInterpolator
    _found: dict[tuple[int, int], float] = field(default_factory=dict)

    @classmethod
    def of(cls, known: Mapping[tuple[int, int], float]) -> _Fit | None:
        if len(known) < _POINTS_MIN:
            return None
        places = np.log(np.array(list(known), dtype=float))
        varying = tuple(column for column in range(2) if np.ptp(places[:, column]) > 0)
        if len(varying) > 1 and np.allclose(places[:, 0], places[:, 1]):
            varying = (0,)  # one count, written twice: the new tokens of a projection
        if not varying:
            return None
        times = np.log(list(known.values()))
        return cls(varying, RBFInterpolator(places[:, varying], times, kernel="linear", degree=1))

    def us(self, first: int, second: int) -> float:
        if (first, second) not in self._found:
            place = np.log([[(first, second)[column] for column in self.varying]])
            self._found[first, second] = float(np.exp(self.surface(place)[0]))
        return self._found[first, second]


@dataclass(frozen=True)
class _Layer:
    """A layer of one setting on one group of ranks that share requests."""

    times: _KernelTimes
    knobs: Mapping[str, KnobValue]
    shape: AttentionShape
    widths: Widths | None

    @property
    def groups(self) -> int:
        """Groups that serve requests of their own."""
        return _count(self.knobs, "dp_size") or 1

    @property
    def side_by_side(self) -> int:
        """Groups with hardware of their own. The reference runtime's replicas share the cores that its kernels were timed on."""
        return self.groups if self.shape.runtime == "sglang" else 1

    @property
    def _cache(self) -> str:
        return "fp8" if self.knobs.get("kv_cache_dtype") == "fp8_e4m3" else "bf16"

    def request_us(self, load: Workload) -> float:
        """Microseconds of a request, of those that its batch shares its part.

        Raises:
            _NotTimed: the times do not tell it.

        """
        lengths = _lengths(load.input_len or 0, load.range_ratio)
        return math.fsum(map(self._prefill_us, lengths)) / len(lengths) + self._decode_us(load)

    def _prefill_us(self, length: int) -> float:
        """A whole prompt."""
        chunk = (_count(self.knobs, "chunked_prefill_size") or 0) // attention_groups(self.knobs)
        return math.fsum(self._piece_us(*one) + self._matrices_us(one.new_tokens) for one in pieces_of(length, chunk))

    def _piece_us(self, new: int, kv: int) -> float:
        """Attention of so many new tokens at the end of so many."""
        threshold = self.knobs.get("mha_threshold_tokens", self.shape.index_topk)
        runtime = self.shape.runtime
        if isinstance(threshold, int) and kv <= threshold:
            return math.fsum(self.times.us(kernel, new, kv) for kernel in _DENSE[runtime])
        backend = self.knobs.get("prefill_backend", _USUAL[self._cache])
        if backend == "flashmla_auto":
            rule, dtype = shipped_rule(self.shape.device or ""), self.knobs.get("kv_cache_dtype")
            backend = choose_auto(rule, dtype, new_tokens=new, kv_tokens=kv)
        own = Kernel("sparse_prefill", self._candidate(_PREFILL, backend), self._cache)
        return math.fsum(self.times.us(kernel, new, kv) for kernel in (own, *_BESIDE[runtime]))

    def _candidate(self, known: Mapping[str, Mapping[tuple[str, str], str]], backend: KnobValue) -> str:
        found = known[self.shape.runtime].get((str(backend), self._cache))
        if found is None:
            raise _NotTimed
        return found

    def _decode_us(self, load: Workload) -> float:
        """A whole answer: its share of each step."""
        steps = (load.output_len or 1) - 1
        if not steps:
            return 0.0
        candidate = self._candidate(_DECODE, self.knobs.get("decode_backend", _USUAL[self._cache]))
        at_once = [_count(self.knobs, name) for name in ("pp_max_micro_batch_size", "max_running_requests")]
        in_flight = min((load.max_concurrency or load.num_prompts, *filter(None, at_once)))
        batch, kv = max(1, in_flight // self.groups), (load.input_len or 0) + steps // 2
        step = self.times.us(Kernel(_DECODES, candidate, self._cache), batch, kv)
        return steps * (step + self._matrices_us(batch)) / batch

    def _matrices_us(self, tokens: int) -> float:
        """The layer's products with so many tokens: as long as its weights take to be read, at least."""
        if self.widths is None:
            return 0.0
        one, together = self.widths, attention_groups(self.knobs)
        into_latent = one.q_lora_rank + one.kv_lora_rank + one.qk_rope_head_dim + one.index_head_dim + one.index_heads
        out_of_latent = one.heads * (one.qk_nope_head_dim + one.qk_rope_head_dim) + one.index_heads * one.index_head_dim
        attention = one.hidden * (into_latent + one.heads * one.v_head_dim) + one.q_lora_rank * out_of_latent
        expert = 3 * one.hidden * one.moe_intermediate
        of_token = attention + (one.active_experts + 1) * expert
        chosen = one.experts * -math.expm1(-tokens * together * one.active_experts / one.experts)
        read = attention + expert + chosen * expert / together
        # fp8 weights: a byte each, and twice the speed of bfloat16
        us = max(2.0 * of_token * tokens / (2e6 * self.times.tflop_s), read / (1e6 * self.times.tb_s))
        return us / (one.heads / self.shape.heads_per_rank)


def _lengths(longest: int, ratio: float) -> list[int]:
    """Prompt lengths between ratio × longest and longest."""
    if ratio >= 1.0:
        return [longest]
    return [max(1, round(longest * (ratio + (1 - ratio) * (place + 0.5) / _LENGTHS))) for place in range(_LENGTHS)]


def _is_split(knobs: Mapping[str, KnobValue]) -> bool:
    """By pipeline or context parallelism, which is not worked out here."""
    sizes = [_count(knobs, name) or 1 for name in ("pp_size", "attn_cp_size", "dcp_size")]
    return max(sizes) > 1 or knobs.get("prefill_cp") is True


def _count(knobs: Mapping[str, KnobValue], name: str) -> int | None:
    value = knobs.get(name)
    return value if isinstance(value, int) and value > 0 else None
