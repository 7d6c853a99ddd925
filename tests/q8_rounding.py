"""What the roundings of flashmla_sparse_q8 amount to in exact arithmetic, on a CPU: errors of heads by keys that a query sees.

python tests/q8_rounding.py [SETS]

One line for each number of keys (256 queries of 128 heads), then SETS times what a check of v3.2-h128-b1-q4096-kv4096 looks
at: 256 random queries of 128 heads over one cache, once with keys chosen at random and once with the selections that a check
draws. 3 to 5 s a set and way on one core. A generator on a GPU draws other values from the same seed.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from statistics import median

import torch

from dsakernels.inputs import normal, packed, pages, selection, slots
from dsakernels.kv_layout import PackedLayout, unpack
from dsakernels.shape import parse

LAYOUT = PackedLayout(512, 64)
_SCALE = 192**-0.5
_HEADS, _QUERIES, _MOST = 128, 256, 2048
_SHAPE = "v3.2-h128-b1-q4096-kv4096"


def fp8(values: torch.Tensor) -> torch.Tensor:
    """Rounded to e4m3 with a scale of 1."""
    return values.to(torch.float8_e4m3fn).float()


def attend(q: torch.Tensor, k: torch.Tensor, *, rounds_weights: bool = False) -> torch.Tensor:
    """q [H, D] over all of k [N, D]; weights are rounded as the kernel does it, relative to the largest."""
    scores = q @ k.T * _SCALE
    weights = (scores - scores.amax(1, keepdim=True)).exp()
    total = weights.sum(1, keepdim=True)
    return (fp8(weights) if rounds_weights else weights) @ k[:, : LAYOUT.latent] / total


def cache(rows: int, generator: torch.Generator) -> torch.Tensor:
    """[rows, D] float32: what a packed cache holds."""
    return unpack(packed(rows, LAYOUT, generator), LAYOUT, torch.float32)


def errors(k: torch.Tensor, generator: torch.Generator, heads: int = _HEADS) -> tuple[torch.Tensor, torch.Tensor]:
    """[H] of one query: against the exact reference, and against the reference over rounded queries and rows."""
    q, rounded = normal((heads, k.shape[1]), generator).float(), fp8(k)
    found, exact, same = attend(fp8(q), rounded, rounds_weights=True), attend(q, k), attend(fp8(q), rounded)
    return tuple((found - other).norm(dim=1) / other.norm(dim=1) for other in (exact, same))  # type: ignore[return-value]


def missed(k: torch.Tensor, generator: torch.Generator) -> float:
    """Worst head of a query over rounded inputs that misses one row."""
    q, rounded = fp8(normal((_HEADS, k.shape[1]), generator).float()), fp8(k)
    whole = attend(q, rounded)
    found = attend(q, rounded[1:], rounds_weights=True)
    return float(((found - whole).norm(dim=1) / whole.norm(dim=1)).max())


def check_of_fresh_prompt(tokens: int, generator: torch.Generator) -> tuple[float, float]:
    """The largest of both errors over 256 queries of a prompt without a prefix."""
    k, worst = cache(tokens, generator), [0.0, 0.0]
    for seen in torch.randint(1, tokens + 1, (_QUERIES,), generator=generator).tolist():
        chosen = torch.randperm(seen, generator=generator)[:_MOST]
        worst = [max(old, float(new.max())) for old, new in zip(worst, errors(k[chosen], generator), strict=True)]
    return worst[0], worst[1]


def check_as_drawn(shape_id: str, seed: int) -> tuple[float, float]:
    """The same with pages, selections and rows drawn as `dsabench kernels check --seed` draws them, on a CPU."""
    shape, generator = parse(shape_id), torch.Generator().manual_seed(seed)
    pool = slots(pages(shape, generator), shape)
    k, worst = cache(len(pool), generator), [0.0, 0.0]
    selected = selection(shape, generator)
    for row in torch.randperm(shape.total_q, generator=torch.Generator().manual_seed(seed))[:_QUERIES].tolist():
        chosen = pool[selected[row][selected[row] >= 0].long()].long()
        worst = [max(old, float(new.max())) for old, new in zip(worst, errors(k[chosen], generator), strict=True)]
    return worst[0], worst[1]


def say(sets: Sequence[tuple[float, float]], how: str) -> None:
    """Ends and median of both errors."""
    for name, values in zip(("exact", "rounded inputs"), zip(*sets, strict=True), strict=True):
        print(
            f"{len(sets)} sets of {_QUERIES * _HEADS:,} heads, {how}, {name}: worst {min(values):.3f} to {max(values):.3f}, "
            f"median {median(values):.3f}",
            flush=True,
        )


def main(sets: int) -> None:
    """Print all."""
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(0)
    for keys in (1, 2, 4, 16, 64, 256, 1024, 2048):
        k = cache(keys * 16, generator).view(16, keys, -1)
        both = [errors(k[number % 16], generator) for number in range(_QUERIES)]
        exact, same = (torch.cat(parts) for parts in zip(*both, strict=True))
        print(
            f"{keys:5} keys: exact, median {exact.median():.3f}, worst {exact.max():.3f}; "
            f"rounded inputs, median {same.median():.3f}, worst {same.max():.3f}",
            flush=True,
        )
    k = cache(_MOST, generator)
    worst = [missed(k, generator) for _ in range(200)]
    print(
        f"one of {_MOST} rows missed: {sum(w > 0.08 for w in worst)} of 200 above 0.08, {sum(w > 0.3 for w in worst)} above 0.3"
    )
    say([check_of_fresh_prompt(4096, generator) for _ in range(sets)], "keys at random")
    say([check_as_drawn(_SHAPE, seed) for seed in range(sets)], "selections of a check")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 50)
