"""Forms of the rule that `flashmla_auto` follows, simplest first, each with its exact optimum.

What a rule costs is a sum over the batches, so the best cuts of every form are found by sums over sorted batches, without a search.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from dsabench.model.tuned_table import ConstantRule, GridRule, RatioRule, SparseKernel
from dsabench.tuners.observed import KERNELS
from dsabench.tuners.prefill_mix import Step

Array = npt.NDArray[np.float64]
Rule = ConstantRule | RatioRule | GridRule
_BEYOND = 1 << 40
"""More tokens than any cache has: an edge there is never reached."""
_SAME = 1e-12
"""Costs that differ by less are rounding: the first of equal rules is taken."""


@dataclass(frozen=True, slots=True)
class Family:
    """One form. `parameters` counts the numbers that are fitted."""

    name: str
    parameters: int
    fit: Callable[[Sequence[Step], Array], Rule]
    """The rule of this form with the least cost; its cuts lie between the batches.

    Args:
        steps: the batches.
        more: what flashmla_sparse costs more than flashmla_kv at each of them, in any unit; [batches].

    """


def cuts(values: Sequence[float]) -> list[float]:
    """Middles (geometric) between neighbouring values, and one beyond either end.

    As inclusive lower edges of whole tokens they are rounded up: of 2 and 3 the middle is 2.4, and the edge 3.
    """
    ordered = sorted(set(values))
    return [ordered[0] / 2, *((low * high) ** 0.5 for low, high in pairwise(ordered)), ordered[-1] * 2]


def _first_least(costs: Array) -> int:
    return int(np.flatnonzero(costs <= costs.min() + _SAME)[0])


def _below(values: Array, more: Array, edges: Sequence[float]) -> Array:
    """What flashmla_sparse costs more at all batches below each edge; [edges]."""
    order = np.argsort(values, kind="stable")
    sums = np.concatenate(([0.0], np.cumsum(more[order])))
    return np.asarray(sums[np.searchsorted(values[order], edges)], dtype=np.float64)


def _ratio(steps: Sequence[Step], more: Array, *, from_new: bool) -> Rule:
    """flashmla_sparse below a ratio of KV to new tokens; with `from_new` only from so many new tokens on."""
    new = np.array([step.new_tokens for step in steps], dtype=np.float64)
    ratios = np.array([step.kv_tokens / step.new_tokens for step in steps])
    found, edges = cuts(ratios.tolist()), cuts(new.tolist()) if from_new else [1.0]
    costs = np.array([_below(ratios, np.where(new >= edge, more, 0.0), found) for edge in edges])
    row, column = divmod(_first_least(costs.ravel()), len(found))
    edge = math.ceil(edges[row])
    return RatioRule(kv_per_new_token=float(f"{found[column]:.5g}"), from_new_tokens=edge if edge > 1 else None)


def _threshold(steps: Sequence[Step], more: Array) -> Rule:
    """flashmla_sparse from so many new tokens on."""
    new = np.array([step.new_tokens for step in steps], dtype=np.float64)
    edges = cuts(new.tolist())
    edge = math.ceil(edges[_first_least(more.sum() - _below(new, more, edges))])
    if edge <= 1:
        return ConstantRule(kernel=KERNELS[0])
    return GridRule(new_tokens=(1, edge), kv_tokens=(1,), kernels=((KERNELS[1],), (KERNELS[0],)))


def _staircase(steps: Sequence[Step], more: Array, *, rows: int) -> Rule:
    """New tokens in `rows` + 1 rows: the first always flashmla_kv, each further one flashmla_sparse below a cut of the KV tokens
    that does not fall from row to row. More new tokens share one dequantising of the prefix, so that the sparse kernel can only gain by
    them.

    Dynamic programming from the last row to the first over (where the row begins, its cut).
    """
    new = np.array([step.new_tokens for step in steps], dtype=np.float64)
    kv = np.array([step.kv_tokens for step in steps], dtype=np.float64)
    edges, columns = cuts(new.tolist()), [*cuts(kv.tolist()), float(_BEYOND)]
    # From each edge on, without end, below each cut.
    open_end = np.array([_below(kv, np.where(new >= edge, more, 0.0), columns) for edge in edges])
    costs = [open_end]
    for _ in range(rows - 1):
        costs.append(open_end + _least_from(_least_from(costs[-1], axis=1) - open_end, axis=0))
    row, column = divmod(_first_least(costs[-1].ravel()), len(columns))
    taken = [(edges[row], columns[column])]
    for later in reversed(costs[:-1]):
        row += _first_least((_least_from(later, axis=1) - open_end)[row:, column])
        column += _first_least(later[row, column:])
        taken.append((edges[row], columns[column]))
    return _grid(taken)


def _least_from(costs: Array, *, axis: int) -> Array:
    """The least of each entry and those after it."""
    return np.asarray(np.flip(np.minimum.accumulate(np.flip(costs, axis), axis), axis))


def _grid(rows: Sequence[tuple[float, float]]) -> Rule:
    """Rows of (least new tokens, cut of the KV tokens), ascending; of rows that begin together the last one counts."""
    cut_of = {1: 0, **{max(math.ceil(edge), 1): math.ceil(cut) for edge, cut in rows}}
    columns = sorted({cut for cut in cut_of.values() if 1 < cut < _BEYOND})
    kernels = [tuple(KERNELS[0] if column < cut else KERNELS[1] for column in (1, *columns)) for cut in cut_of.values()]
    return GridRule(new_tokens=tuple(cut_of), kv_tokens=(1, *columns), kernels=tuple(kernels))


def _always(steps: Sequence[Step], more: Array, *, kernel: SparseKernel) -> Rule:
    del steps, more
    return ConstantRule(kernel=kernel)


FAMILIES: tuple[Family, ...] = (
    Family("always flashmla_kv", 0, partial(_always, kernel="flashmla_kv")),
    Family("always flashmla_sparse", 0, partial(_always, kernel="flashmla_sparse")),
    Family("one ratio", 1, partial(_ratio, from_new=False)),
    Family("one threshold of new tokens", 1, _threshold),
    Family("one ratio, from so many new tokens", 2, partial(_ratio, from_new=True)),
    Family("staircase of 1", 2, partial(_staircase, rows=1)),
    Family("staircase of 2", 4, partial(_staircase, rows=2)),
)
