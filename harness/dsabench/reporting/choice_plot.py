"""Which of two kernels is faster at which batch, and which one a rule takes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from dsabench.errors import StoreError
from dsabench.model.tuned_table import ConstantRule, GridRule, RatioRule, TunedTable, choose

Batch = tuple[int, int, float]
"""New tokens, KV tokens, and time of flashmla_kv over time of flashmla_sparse."""
_SLOWER = 1.02
_TICKS = {
    "flashmla_kv\n2 × as fast": 0.5,
    "1.5 ×": 1 / 1.5,
    "equal": 1.0,
    "1.5 × ": 1.5,
    "flashmla_sparse\n2 × as fast": 2.0,
}


def draw_choice(batches: Sequence[Batch], table: TunedTable, file: Path) -> Path:
    """One SVG: a point a shape, its colour the ratio of times up to twofold, shaded where the table takes flashmla_sparse.

    A cross marks a shape for which the rule takes the kernel that is slower by more than 2 %.

    Raises:
        StoreError: the file cannot be written.

    """
    import matplotlib as mpl  # noqa: PLC0415  (half a second)
    import numpy as np  # noqa: PLC0415

    mpl.use("svg")
    from matplotlib import pyplot as plt  # noqa: PLC0415

    rule = table.rule
    assert isinstance(rule, ConstantRule | RatioRule | GridRule), "the table's own check ties the form to the kind"

    def takes_sparse(new_tokens: int, kv_tokens: int) -> bool:
        return choose(rule, new_tokens=new_tokens, kv_tokens=kv_tokens) == "flashmla_sparse"

    mpl.rcParams["svg.hashsalt"] = "dsabench"
    figure, axes = plt.subplots(figsize=(7.6, 4.8), layout="constrained")
    new = [batch[0] for batch in batches]
    kv = [batch[1] for batch in batches]
    xs, ys = (np.geomspace(min(v) / 1.6, max(v) * 1.6, 160) for v in (new, kv))
    shade = np.array([[1.0 if takes_sparse(int(x), int(y)) else np.nan for x in xs] for y in ys])
    axes.pcolormesh(xs, ys, shade, cmap="Greys", vmin=0, vmax=8, shading="nearest", rasterized=True)
    gains = [math.log2(batch[2]) for batch in batches]
    points = axes.scatter(
        new, kv, c=gains, cmap="PuOr", vmin=-1, vmax=1, edgecolors="#444", linewidths=0.6, s=64, zorder=3
    )
    missed = [(n, k) for n, k, ratio in batches if (1 / ratio if takes_sparse(n, k) else ratio) > _SLOWER]
    if missed:
        axes.scatter([n for n, _ in missed], [k for _, k in missed], marker="x", c="#b00020", s=40, zorder=4)
    said = "shaded: the rule takes flashmla_sparse"
    said += f"; crosses: it takes the slower one ({len(missed)} of {len(batches)})" if missed else ""
    axes.set(xscale="log", yscale="log", xlabel="new tokens of the batch", ylabel="tokens in its KV cache")
    axes.set_title(f"{table.device}, {table.heads_per_rank} heads, {table.kv_cache_dtype}\n", fontsize=11, loc="left")
    axes.text(0.0, 1.015, said, transform=axes.transAxes, fontsize=8.5, color="#444")
    bar = figure.colorbar(points, extend="both", ticks=[math.log2(factor) for factor in _TICKS.values()])
    bar.ax.set_yticklabels(list(_TICKS), fontsize=8.5)
    try:
        figure.savefig(file, metadata={"Date": None})
    except OSError as error:
        raise StoreError(f"{file}: {error.strerror}: the plot was not written") from error
    finally:
        plt.close(figure)
    return file
