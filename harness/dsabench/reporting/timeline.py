"""The picture of one load test over time: TTFT, gaps between tokens, requests in flight, tokens per second."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dsabench.errors import InputError, StoreError
from dsabench.load.judge.steady_state import NoSteadyState, SteadyWindow, steady_window
from dsabench.model.sample import RequestSample, Times
from dsabench.model.workload import Workload
from dsabench.reporting.over_time import (
    Bins,
    gaps_over_time,
    in_flight_over_time,
    largest_over_time,
    quantiles_over_time,
    token_rates,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's palette: told apart by colour-blind readers; lines and marks differ besides.
_BLUE, _VERMILION, _GREEN, _PURPLE = "#0072B2", "#D55E00", "#009E73", "#CC79A7"
_SHADE = "#E8E8E8"
_RASTER_FROM = 500
"""From so many points on they are drawn as pixels inside the SVG, which would be megabytes otherwise."""
_GAPS_FROM = 4000
"""From so many gaps on they are summed up per bin; fewer are drawn one by one."""
_TITLE_SHARE = 0.97
"""Of the picture's width."""
_SUFFIXES = (".svg", ".png")


def draw_timeline(
    samples: Sequence[RequestSample], path: Path, title: str, workload: Workload | None = None
) -> tuple[Path, Path]:
    """Write the picture as SVG and, beside it, as PNG of 800 × 860 pixels; returns both paths.

    The steady state is shaded where `workload` says what concurrency was asked for, and where there is one.

    Raises:
        InputError: no request brought a token, or the path ends in something else than .svg or .png.
        StoreError: disk full or read-only.

    """
    if path.suffix and path.suffix not in _SUFFIXES:
        raise InputError(f"{path}: pictures are written as .svg and .png")
    if not any(len(sample.frames) for sample in samples):
        raise InputError("no request brought a token: there is nothing to draw")
    from matplotlib import rc_context  # noqa: PLC0415  (half a second that only a picture pays)
    from matplotlib.figure import Figure  # noqa: PLC0415

    style: dict[Any, Any] = {
        "svg.hashsalt": "dsabench",
        "font.size": 9,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "grid.color": "#DDDDDD",
        "grid.linewidth": 0.6,
        "axes.axisbelow": True,
        "text.parse_math": False,
    }
    with rc_context(style):
        figure = Figure(figsize=(8, 8.6), dpi=100, layout="constrained")
        panels = figure.subplots(4, 1, sharex=True)
        _draw(panels, samples, workload)
        _put_title(figure, title)
        svg, png = (path.with_suffix(suffix) for suffix in _SUFFIXES)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            figure.savefig(svg, metadata={"Date": None}, dpi=200)  # of what is drawn as pixels
            figure.savefig(png)
        except OSError as error:
            raise StoreError(f"{svg}: {error.strerror or error}: the picture was not written") from error
    return svg, png


def _put_title(figure: Figure, title: str) -> None:
    """The title in as many lines as its letters need: knobs are set without spaces, and no two fonts are alike wide."""
    text = figure.suptitle("", fontsize=10)
    for width in range(120, 40, -4):
        text.set_text(textwrap.fill(title, width))
        if text.get_window_extent().width <= _TITLE_SHARE * figure.bbox.width:
            return


def _draw(panels: Any, samples: Sequence[RequestSample], workload: Workload | None) -> None:
    bins = Bins.over(samples)
    _draw_ttft(panels[0], samples)
    _draw_gaps(panels[1], samples, bins)
    _draw_in_flight(panels[2], samples, workload, bins)
    _draw_rate(panels[3], samples, bins)
    panels[3].set_xlabel("seconds since the start of the measurement")
    panels[3].set_xlim(-0.01 * bins.edges_s[-1], bins.edges_s[-1])
    window = NoSteadyState("") if workload is None else steady_window(samples, workload)
    if isinstance(window, SteadyWindow):
        for panel in panels:
            panel.axvspan(window.start_s, window.end_s, color=_SHADE, zorder=0, lw=0)
    said = (
        f"steady state: {window.start_s:.3g} to {window.end_s:.3g} s (shaded)"
        if isinstance(window, SteadyWindow)
        else ""
    )
    if isinstance(window, NoSteadyState) and window.reason:
        said = f"no steady state: {window.reason}"
    panels[0].set_title(said, loc="left", fontsize=8, color="#444444")
    for panel in panels:
        top = panel.dataLim.ymax
        panel.set_ylim(0, 1.06 * top if np.isfinite(top) and top > 0 else 1.0)
        if panel.get_legend_handles_labels()[1]:  # above the panel, where it hides no data
            panel.legend(
                loc="lower right", bbox_to_anchor=(1.0, 0.98), fontsize=8, frameon=False, ncols=3, borderaxespad=0.0
            )


def _draw_ttft(panel: Axes, samples: Sequence[RequestSample]) -> None:
    begun = [sample for sample in samples if len(sample.frames)]
    sent_s = np.array([sample.sent_s for sample in begun])
    ttft_ms = np.array([(sample.frames.at_s[0] - sample.sent_s) * 1e3 for sample in begun])
    raster = len(begun) > _RASTER_FROM
    panel.scatter(
        sent_s, ttft_ms, s=8, color=_BLUE, alpha=0.6, lw=0, label="a request, where it was sent", rasterized=raster
    )
    failed_s = [sample.done_s for sample in samples if sample.error is not None]
    if failed_s:
        # On the axis: a failed request has no latency.
        panel.scatter(
            failed_s, np.zeros(len(failed_s)), marker="x", s=28, color=_VERMILION, label="failed, where it ended",
            clip_on=False, zorder=4,
        )  # fmt: skip
    panel.set_ylabel("TTFT (ms)")


def _draw_gaps(panel: Axes, samples: Sequence[RequestSample], bins: Bins) -> None:
    ends_s, gaps_ms = gaps_over_time(samples)
    panel.set_ylabel("ITL (ms)")
    if not len(gaps_ms):
        panel.text(0.5, 0.5, "one frame per answer: no gaps", transform=panel.transAxes, ha="center")
    elif len(gaps_ms) < _GAPS_FROM:
        raster = len(gaps_ms) > _RASTER_FROM
        panel.scatter(
            ends_s, gaps_ms, s=5, color=_BLUE, alpha=0.6, lw=0, label="a gap, where it ended", rasterized=raster
        )
    else:
        median, tail = quantiles_over_time(ends_s, gaps_ms, bins, (0.5, 0.99))
        largest = largest_over_time(ends_s, gaps_ms, bins)
        panel.plot(bins.middles_s, largest, ls="none", marker="^", ms=3.5, color=_PURPLE, label="largest")
        panel.plot(bins.middles_s, tail, lw=1.2, ls="--", color=_VERMILION, label="p99")
        panel.plot(bins.middles_s, median, lw=1.6, color=_BLUE, label=f"median of {bins.width_s:g} s")


def _draw_in_flight(panel: Axes, samples: Sequence[RequestSample], workload: Workload | None, bins: Bins) -> None:
    panel.stairs(
        in_flight_over_time(samples, bins), bins.edges_s, color=_GREEN, lw=1.4, label=f"mean of {bins.width_s:g} s"
    )
    if workload is not None and workload.max_concurrency is not None:
        panel.axhline(workload.max_concurrency, lw=1, ls=":", color="#444444", label="max_concurrency")
    panel.set_ylabel("requests in flight")


def _draw_rate(panel: Axes, samples: Sequence[RequestSample], bins: Bins) -> None:
    rates: Times = token_rates(samples, bins)
    panel.stairs(rates, bins.edges_s, color=_BLUE, lw=1.2, label=f"mean of {bins.width_s:g} s")
    panel.set_ylabel("output (tok/s)")
