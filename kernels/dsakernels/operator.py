"""What an operator is: inputs, a reference in float64, an error, a tolerance, and the least work it can be done with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch

from dsakernels.shape import OperatorShape

Dtype = Literal["bf16", "fp8"]
"""How the cache is kept: bfloat16, or fp8 e4m3 with scales. Queries and outputs are bfloat16."""


@dataclass(frozen=True, slots=True)
class MinimumCost:
    """The least that must be moved and computed, whatever the kernel: the floor of its time."""

    bytes: int
    flops: int
    link_bytes: int = 0
    """Those of `bytes` that come over the host's link, which is slower than any memory."""


@dataclass(frozen=True, slots=True)
class Operator:
    """One operator. `make` gives inputs of a type of its own, which `expected`, `pick` and every candidate take.

    `expected(inputs, rows)` is the answer for these query rows in float64, `pick(inputs, output, rows)` what a
    candidate's output says about them, as float64 of the same shape; what neither defines (logits of tokens that a
    query does not see) is 0 in both.
    """

    name: str
    does: str
    dtypes: tuple[Dtype, ...]
    tolerance: Mapping[Dtype, float]
    """Largest ‖output - expected‖ / ‖expected‖ of one row that is right; see `norms`."""
    small: tuple[OperatorShape, ...]
    """For a CPU and for tests."""
    grid: Callable[[], tuple[OperatorShape, ...]]
    """Of real models, for a GPU."""
    make: Callable[[OperatorShape, Dtype, torch.Generator], Any]
    rows: Callable[[OperatorShape], int]
    expected: Callable[[Any, torch.Tensor], torch.Tensor]
    pick: Callable[[Any, torch.Tensor, torch.Tensor], torch.Tensor]
    cost: Callable[[OperatorShape, Dtype], MinimumCost]
    parts: Callable[[OperatorShape], int] | None = None
    """Outputs are [T, P, …], and each of a query's P is a row of its own: one wrong head does not hide among 128. How many
    rows a query counts for: its heads, the tokens that had to be copied."""
    redraw: Callable[[Any, torch.Generator], Any] | None = None
    """Fresh queries over the same cache: what changes from step to step. None: `make` is quick enough."""
    spoil: Callable[[Any], None] | None = None
    """Overwrite what a call has to write into its inputs, where it does so: an earlier call's work is no answer."""
    norms: Callable[[Any, torch.Tensor], torch.Tensor] | None = None
    """[rows] that errors are held against in place of ‖expected‖, of sums whose terms may cancel: such a row has rounding
    errors of its terms' size, however small the sum is."""
    study: Callable[[], tuple[OperatorShape, ...]] | None = None
    """Where the choice between kernels is studied more finely than `grid`."""
    rank: Callable[[], tuple[OperatorShape, ...]] | None = None
    """What a whole rank of DeepSeek-V3.2 under DP attention meets."""


def rows_of(_inputs: object, output: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """`pick` of an output whose first dimension is the query."""
    return output[rows].double()


def relative_error(
    found: torch.Tensor, expected: torch.Tensor, *, by_part: bool = False, norms: torch.Tensor | None = None
) -> float:
    """Largest ‖found - expected‖ / ‖expected‖ (or / norms) over the rows; not finite where an output is not."""
    rows = 2 if by_part else 1
    difference = (found - expected).flatten(rows).norm(dim=-1)
    norms = expected.flatten(rows).norm(dim=-1) if norms is None else norms
    return float((difference / norms.clamp(min=1e-30)).max())
