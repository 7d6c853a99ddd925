"""Which of two kernels is faster at which batch, and which one a rule takes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path

from dsabench.errors import StoreError

Batch = tuple[int, int, float]
"""New tokens, KV tokens, and time of flashmla_kv over time of flashmla_sparse."""


def draw_choice(batches: Sequence[Batch], takes_sparse: Callable[[int, int], bool], title: str, file: Path) -> Path:
    """One SVG: a point a shape, its colour the ratio of times, shaded where the rule takes flashmla_sparse.

    Raises:
        StoreError: the file cannot be written.

    """
    import matplotlib as mpl  # noqa: PLC0415  (half a second)
    import numpy as np  # noqa: PLC0415

    mpl.use("svg")
    from matplotlib import pyplot as plt  # noqa: PLC0415

    mpl.rcParams["svg.hashsalt"] = "dsabench"
    figure, axes = plt.subplots(figsize=(7, 4.5), layout="constrained")
    new = [batch[0] for batch in batches]
    kv = [batch[1] for batch in batches]
    xs, ys = (np.geomspace(min(v) / 1.6, max(v) * 1.6, 160) for v in (new, kv))
    shade = np.array([[1.0 if takes_sparse(int(x), int(y)) else np.nan for x in xs] for y in ys])
    axes.pcolormesh(xs, ys, shade, cmap="Greys", vmin=0, vmax=6, shading="nearest", rasterized=True)
    gains = [100 * math.log(batch[2]) for batch in batches]
    limit = max(1.0, *(abs(gain) for gain in gains))
    points = axes.scatter(new, kv, c=gains, cmap="RdBu", vmin=-limit, vmax=limit, edgecolors="black", s=70, zorder=3)
    axes.set(xscale="log", yscale="log", xlabel="new tokens of the batch", ylabel="tokens in its KV cache", title=title)
    figure.colorbar(points, label="100 × ln(time of flashmla_kv / flashmla_sparse)")
    axes.text(0.01, 0.01, "shaded: the rule takes flashmla_sparse", transform=axes.transAxes, fontsize=8)
    try:
        figure.savefig(file, metadata={"Date": None})
    except OSError as error:
        raise StoreError(f"{file}: {error.strerror}: the plot was not written") from error
    finally:
        plt.close(figure)
    return file
