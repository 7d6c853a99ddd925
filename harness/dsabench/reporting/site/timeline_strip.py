"""The course of one load test as a small SVG of its own: four panels, some kilobytes, drawn in milliseconds.

matplotlib takes a fifth of a second for the same; a study has thousands of records, and each has its page.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from dsabench.reporting.site.figures import show

Array = npt.NDArray[np.float64]
_BINS = 80
_WIDTH, _PANEL, _GAP, _LEFT, _TOP = 640.0, 64.0, 26.0, 52.0, 18.0
_DOTS_MAX = 600


@dataclass(frozen=True, slots=True)
class Course:
    """Requests as columns; times are seconds since the start of the measurement."""

    sent_s: Array
    done_s: Array
    is_failed: npt.NDArray[np.bool_]
    first_s: Array
    """NaN where no token came."""
    frame_s: Array
    """Of every frame of every request."""
    frame_tokens: Array
    gap_end_s: Array
    gap_ms: Array
    """Between two frames of one answer."""

    @property
    def end_s(self) -> float:
        """When the last byte came."""
        return float(self.done_s.max())


def read_course(file: Path) -> Course | None:
    """The columns of a Parquet file of samples; None where it cannot be read or is empty."""
    import pyarrow as pa  # noqa: PLC0415
    import pyarrow.parquet as pq  # noqa: PLC0415

    names = ["sent_s", "done_s", "error", "frame_at_s", "frame_tokens"]
    try:
        table = pq.ParquetFile(file).read(columns=names, use_threads=False).combine_chunks()
        if table.num_rows == 0 or table.num_columns < len(names):
            return None
        lists = table.column("frame_at_s").chunk(0)
        offsets = lists.offsets.to_numpy()
        at_s = lists.values.to_numpy(zero_copy_only=False)
        tokens = table.column("frame_tokens").chunk(0).values.to_numpy(zero_copy_only=False).astype(np.float64)
        sent_s, done_s = (table.column(name).to_numpy() for name in names[:2])
        failed = ~np.asarray(table.column("error").is_null().to_numpy(), bool)
    except (OSError, pa.ArrowException, AttributeError, ValueError):
        return None
    counts = np.diff(offsets)
    first_s = np.full(len(counts), np.nan)
    first_s[counts > 0] = at_s[offsets[:-1][counts > 0]]
    inner = np.ones(max(len(at_s) - 1, 0), bool)
    borders = offsets[1:-1] - 1
    inner[borders[(borders >= 0) & (borders < len(inner))]] = False
    gaps_ms = np.diff(at_s)[inner] * 1e3
    return Course(sent_s, done_s, failed, first_s, at_s, tokens, at_s[1:][inner], gaps_ms)


def draw_strip(course: Course) -> str:
    """An SVG element; every word in it is ours, every other thing a number."""
    end_s = max(course.end_s, 1e-6)
    panels = [
        _latency("TTFT, ms", course.sent_s, (course.first_s - course.sent_s) * 1e3, end_s),
        _latency("gap between frames, ms", course.gap_end_s, course.gap_ms, end_s),
        _steps("requests in flight", _in_flight(course, end_s)),
        _steps("output, tok/s", np.bincount(_bins(course.frame_s, end_s), course.frame_tokens, _BINS) * _BINS / end_s),
    ]
    parts = []
    for index, (title, body, top) in enumerate(panels):
        y = _TOP + index * (_PANEL + _GAP)
        parts.append(
            f'<g transform="translate({_LEFT:g} {y:g})"><path class="axis" d="M0 0V{_PANEL:g}H{_WIDTH - _LEFT - 8:g}"/>'
            f'<text x="0" y="-6">{title}</text><text class="tick" x="-6" y="6">{show(top)}</text>'
            f'<text class="tick" x="-6" y="{_PANEL:g}">0</text>{body}</g>'
        )
    failed_s = course.done_s[course.is_failed]
    crosses = "".join(f"M{_x(s, end_s):.0f} {_TOP - 3:g}l5 5m0-5l-5 5" for s in failed_s[:200])
    height = _TOP + 4 * (_PANEL + _GAP) + 4
    said = f"Course of {len(course.sent_s)} requests over {show(end_s)} seconds, {len(failed_s)} failed."
    return (
        f'<svg class="strip" role="img" aria-label="{said}" viewBox="0 0 {_WIDTH:g} {height:g}">{"".join(parts)}'
        + (f'<path class="failed" transform="translate({_LEFT:g} 0)" d="{crosses}"/>' if crosses else "")
        + f'<text class="tick" x="{_WIDTH - 8:g}" y="{height - 8:g}">{show(end_s)} s</text>'
        f'<text x="{_LEFT:g}" y="{height - 8:g}">0 s</text></svg>'
    )


def _latency(title: str, at_s: Array, values: Array, end_s: float) -> tuple[str, str, float]:
    """Dots where there are few; else the median and the largest of each bin."""
    known = np.isfinite(values)
    at_s, values = at_s[known], values[known]
    if not len(values):
        return title, f'<text class="none" x="8" y="{_PANEL / 2:g}">none</text>', 0.0
    top = max(float(values.max()), 1e-9)
    if len(values) <= _DOTS_MAX:
        places = zip(_whole(_x(at_s, end_s)), _whole(_y(values, top)), strict=True)
        return title, f'<path class="dots" d="{"".join([f"M{x} {y}h0" for x, y in places])}"/>', top
    place = _bins(at_s, end_s)
    order = np.lexsort((values, place))
    counts = np.bincount(place, minlength=_BINS)
    ends = np.cumsum(counts)
    having = np.flatnonzero(counts)
    ordered = values[order]
    medians, largest = ordered[(ends - counts + (counts - 1) // 2)[having]], ordered[(ends - 1)[having]]
    xs = _x((having + 0.5) * end_s / _BINS, end_s)
    lines = [
        f'<path class="{name}" d="{_line(xs, _y(of_bin, top))}"/>'
        for name, of_bin in (("tail", largest), ("median", medians))
    ]
    return f"{title}: median and largest of each bin", "".join(lines), top


def _steps(title: str, heights: Array) -> tuple[str, str, float]:
    top = max(float(heights.max()), 1e-9)
    xs = np.arange(_BINS + 1) * (_WIDTH - _LEFT - 8) / _BINS
    ys = _y(heights, top)
    path = (
        f"M0 {_PANEL:g}"
        + "".join([f"V{y}H{x}" for y, x in zip(_whole(ys), _whole(xs[1:]), strict=True)])
        + f"V{_PANEL:g}Z"
    )
    return title, f'<path class="area" d="{path}"/>', top


def _in_flight(course: Course, end_s: float) -> Array:
    """[bins] requests in flight, averaged over each bin."""
    edges_s = np.linspace(0.0, end_s, _BINS + 1)
    began, ended = np.sort(course.sent_s), np.sort(course.done_s)
    spent = _before(began, edges_s) - _before(ended, edges_s)
    return np.asarray(np.diff(spent) * _BINS / end_s, np.float64)


def _before(moments_s: Array, edges_s: Array) -> Array:
    """[edges] seconds between each moment and the edge, summed over the moments before it."""
    sums = np.concatenate(([0.0], np.cumsum(moments_s)))
    count = np.searchsorted(moments_s, edges_s)
    return np.asarray(count * edges_s - sums[count], np.float64)


def _bins(at_s: Array, end_s: float) -> npt.NDArray[np.int64]:
    return np.clip((at_s * (_BINS / end_s)).astype(np.int64), 0, _BINS - 1)


def _x(at_s: Array | float, end_s: float) -> Array:
    return np.asarray(np.asarray(at_s) * ((_WIDTH - _LEFT - 8) / end_s), np.float64)


def _y(values: Array, top: float) -> Array:
    return np.asarray(_PANEL * (1.0 - values / top), np.float64)


def _line(xs: Array, ys: Array) -> str:
    return "M" + "L".join([f"{x} {y}" for x, y in zip(_whole(xs), _whole(ys), strict=True)])


def _whole(values: Array) -> list[int]:
    return [int(value) for value in np.rint(values).tolist()]
