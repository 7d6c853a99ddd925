"""The time of a server's prefill as a sum: kernel times of each layer, and a rest that no kernel of ours measures.

    T = constant + Σ over the chunks of max(wait, rest · new tokens + layers · kernels(new, cached))

`kernels` is, sparse: indexer_ragged + topk_select + absorb + sparse_prefill; dense: kv_expand + dense_prefill. The rest
(projections, experts, norms) goes by the new tokens; `wait` is what the host takes to launch a step, which the GPU waits
for where the step is short; the constant is HTTP and scheduling. These three are all that is taken from the server, from
at most three of its times, all of one setting.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

from dsabench.errors import InputError
from dsabench.microbench.measured import Measurement
from dsabench.microbench.shape_id import shape_of
from dsabench.model.prefill_time import PrefillTime

_CANDIDATES = {
    "indexer_ragged": "deep_gemm",
    "topk_select": "sgl_kernel",
    "absorb": "torch_bmm",
    "kv_expand": "torch_mm",
    "dense_prefill": "fa3_varlen",
}
_SPARSE = {"flashmla_sparse": "flashmla_sparse_dequantise", "flashmla_kv": "flashmla_kv"}
_CALIBRATED = "flashmla_sparse"

Curve = Sequence[tuple[int, float]]
"""(tokens, microseconds), tokens rising."""


@dataclass(frozen=True, slots=True)
class LayerTimes:
    """Kernel times of one layer and one rank. Between measured numbers of tokens, and beyond, they are taken as linear."""

    curves: Mapping[tuple[str, str, int], Curve]
    """(operator, candidate, new tokens) → by cached tokens; `absorb` and `kv_expand` by their tokens, under 0."""

    def step_us(self, backend: str, threshold: int, step: tuple[int, int]) -> float:
        """One layer of one chunk of (new, cached) tokens."""
        new, cached = step
        if new + cached <= threshold:
            return self._at("kv_expand", 0, new + cached) + self._at("dense_prefill", new, cached)
        around = self._at("absorb", 0, new)
        indexing = self._at("indexer_ragged", new, cached) + self._at("topk_select", new, cached)
        return around + indexing + self._at("sparse_prefill", new, cached, _SPARSE[backend])

    def _at(self, operator: str, new: int, tokens: int, candidate: str | None = None) -> float:
        name = candidate or _CANDIDATES[operator]
        curve = self.curves.get((operator, name, new), ())
        if not curve:
            of = f"{new} new tokens" if new else "any"
            raise InputError(f"no time of {operator} by {name} for {of}: `dsabench kernels bench` has not measured it")
        return _between(curve, tokens)


def layer_times(measurements: Iterable[Measurement], model: str, heads: int) -> LayerTimes:
    """Of one sequence at a time."""
    curves: dict[tuple[str, str, int], dict[int, float]] = defaultdict(dict)
    for m in measurements:
        shape = shape_of(m.shape_id)
        if m.status != "ok" or m.median_us is None or (shape.model, shape.heads, shape.batch) != (model, heads, 1):
            continue
        if m.operator == "sparse_prefill" and m.dtype != "fp8":
            continue
        is_flat = m.operator in ("absorb", "kv_expand")
        new = 0 if is_flat else shape.q_tokens
        curves[m.operator, m.candidate, new][shape.kv_tokens if is_flat else shape.kv_tokens - new] = m.median_us
    return LayerTimes({key: sorted(curve.items()) for key, curve in curves.items()})


@dataclass(frozen=True, slots=True)
class Rest:
    """What the kernels are not; fitted to `of`."""

    constant_ms: float
    per_token_us: float
    wait_ms: float
    of: tuple[PrefillTime, ...] = field(default=())

    def predict(self, time: PrefillTime, layers: LayerTimes) -> float:
        """Milliseconds."""
        return self.constant_ms + sum(
            max(self.wait_ms, (self.per_token_us * step[0] + kernels) / 1e3)
            for step, kernels in zip(time.steps, _kernels_us(time, layers), strict=True)
        )


@dataclass(frozen=True, slots=True)
class Predicted:
    """One time of the server and its prediction. `is_fitted`: the prediction was made from this very time."""

    time: PrefillTime
    kernels_ms: float
    predicted_ms: float
    is_fitted: bool

    @property
    def error(self) -> float:
        """Share of the measured time; above 0 the prediction is too long."""
        return self.predicted_ms / self.time.ms - 1


@dataclass(frozen=True, slots=True)
class Series:
    """All times of one series."""

    name: str
    rest: Rest
    points: tuple[Predicted, ...]

    @property
    def judged(self) -> tuple[Predicted, ...]:
        """Those that the rest was not fitted to."""
        return tuple(point for point in self.points if not point.is_fitted)

    @property
    def median_error(self) -> float:
        """Of the errors' sizes."""
        return median(abs(point.error) for point in self.judged)


def predict_series(times: Sequence[PrefillTime], measurements: Sequence[Measurement]) -> Series:
    """Fit the rest to one setting and predict all.

    Raises:
        InputError: no time to fit to or to predict, or no kernel times.

    """
    layers = layer_times(measurements, times[0].model, times[0].heads)
    rest = _fit(times, layers)
    points = tuple(
        Predicted(time, sum(_kernels_us(time, layers)) / 1e3, rest.predict(time, layers), time in rest.of)
        for time in times
    )
    series = Series(times[0].series, rest, points)
    if not series.judged:
        raise InputError(f"{series.name}: all times were needed for the fit; none is left to predict")
    return series


def _fit(times: Sequence[PrefillTime], layers: LayerTimes) -> Rest:
    """From the shortest and the longest prompt of one sparse chunk with nothing cached, and the shortest step."""
    setting = min((t for t in times if t.prefill_backend == _CALIBRATED), key=_threshold, default=None)
    if setting is None:
        raise InputError(f"{times[0].series}: no time with {_CALIBRATED} to take the rest of a layer from")
    column = [t for t in times if (t.prefill_backend, t.mha_threshold_tokens) == setting.setting[:2]]
    whole = sorted((t for t in column if _is_sparse_chunk(t)), key=lambda t: t.new_tokens)
    if not whole:
        raise InputError(f"{times[0].series}: no prompt in one chunk, longer than the threshold, to take the rest from")
    low, high = whole[0], whole[-1]
    rests = [t.ms - sum(_kernels_us(t, layers)) / 1e3 for t in (low, high)]
    slope = rests[1] / high.new_tokens if low is high else (rests[1] - rests[0]) / (high.new_tokens - low.new_tokens)
    constant = 0.0 if low is high else rests[0] - slope * low.new_tokens
    short = min(column, key=lambda t: (max(new for new, _ in t.steps), t.cached_tokens))
    wait = max(0.0, (short.ms - constant) / len(short.steps))
    return Rest(constant, slope * 1e3, wait, tuple(dict.fromkeys((low, high, short))))


def _is_sparse_chunk(time: PrefillTime) -> bool:
    return len(time.steps) == 1 and not time.cached_tokens and time.new_tokens > time.mha_threshold_tokens


def _threshold(time: PrefillTime) -> int:
    return time.mha_threshold_tokens


def _kernels_us(time: PrefillTime, layers: LayerTimes) -> list[float]:
    backend, threshold, _ = time.setting
    return [time.layers * layers.step_us(backend, threshold, step) for step in time.steps]


def _between(curve: Curve, tokens: int) -> float:
    """Straight between the neighbours, or on through the nearest two."""
    if len(curve) == 1:
        return curve[0][1]
    at = min(max(bisect_left(curve, (tokens, 0.0)), 1), len(curve) - 1)
    (x0, y0), (x1, y1) = curve[at - 1], curve[at]
    return max(0.0, y0 + (y1 - y0) * (tokens - x0) / (x1 - x0))
