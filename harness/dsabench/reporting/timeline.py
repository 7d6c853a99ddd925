"""One load test over time as a small SVG of its own: four panels, some kilobytes, drawn in milliseconds.

matplotlib takes a fifth of a second for the same; a study has thousands of records, and each has its page.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

import numpy as np
import numpy.typing as npt

from dsabench.errors import InputError, StoreError
from dsabench.load.judge.steady_state import NoSteadyState, SteadyWindow, steady_window
from dsabench.model.sample import RequestSample
from dsabench.model.workload import Workload
from dsabench.reporting.numbers import show_figure

Array = npt.NDArray[np.float64]
_BINS = 80
_WIDTH, _PANEL, _GAP, _LEFT, _TOP = 640.0, 64.0, 26.0, 52.0, 18.0
_INNER = _WIDTH - _LEFT - 8
_DOTS_MAX = 600
_LINE_LETTERS = 58
"""Of a title: as many of the widest letters as a line holds."""
_STYLE = (
    ".strip{font:11px system-ui,sans-serif}text{fill:#1c2024}.tick{text-anchor:end;fill:#5b636d;font-size:10px}"
    ".none,.quiet{fill:#5b636d}path{fill:none;stroke:#0067a3;stroke-width:1.4}.axis{stroke:#e2e5e9}"
    ".dots{stroke-width:3.2;stroke-linecap:round;opacity:.7}.tail{stroke:#c24e00;stroke-dasharray:4 2}"
    ".area{fill:#cfe8df;fill-opacity:.7;stroke:#00785a}.failed{stroke:#b3401a;stroke-width:1.6}.steady{fill:#eceef1}"
    ".asked{stroke:#5b636d;stroke-dasharray:2 3}"
)
"""Of a file of its own; inside a page the site's stylesheet says it."""


@dataclass(frozen=True, slots=True)
class RequestTimeline:
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

    @classmethod
    def of(cls, samples: Sequence[RequestSample]) -> RequestTimeline:
        """The columns of samples in memory; there is one at least."""
        at_s = [np.asarray(sample.frames.at_s, np.float64) for sample in samples]
        return cls(
            sent_s=np.array([sample.sent_s for sample in samples], np.float64),
            done_s=np.array([sample.done_s for sample in samples], np.float64),
            is_failed=np.array([sample.error is not None for sample in samples], np.bool_),
            first_s=np.array([of[0] if len(of) else np.nan for of in at_s], np.float64),
            frame_s=np.concatenate(at_s),
            frame_tokens=np.concatenate([np.asarray(sample.frames.tokens, np.float64) for sample in samples]),
            gap_end_s=np.concatenate([of[1:] for of in at_s]),
            gap_ms=np.concatenate([np.diff(of) for of in at_s]) * 1e3,
        )


def write_timeline(samples: Sequence[RequestSample], path: Path, title: str, workload: Workload | None = None) -> Path:
    """Write the picture as an SVG file of its own; returns its path, with the suffix that was left out.

    The steady state is shaded where `workload` says what concurrency was asked for, and where there is one.

    Raises:
        InputError: no request brought a token, or the path ends in something else than .svg.
        StoreError: disk full or read-only.

    """
    if path.suffix not in ("", ".svg"):
        raise InputError(f"{path}: pictures are written as .svg")
    if not any(len(sample.frames) for sample in samples):
        raise InputError("no request brought a token: there is nothing to draw")
    window = NoSteadyState("") if workload is None else steady_window(samples, workload)
    limit = None if workload is None else workload.max_concurrency
    inside = window if isinstance(window, SteadyWindow) else None
    body, height = _panels(RequestTimeline.of(samples), inside, limit)
    lines = [f'<text x="8" y="{18 + 15 * i}">{escape(line)}</text>' for i, line in enumerate(_in_lines(title))]
    lines.append(f'<text class="quiet" x="8" y="{18 + 15 * len(lines)}">{escape(_steady_words(window))}</text>')
    top = 15 * len(lines) + 14
    text = (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="strip" width="{1.25 * _WIDTH:g}" '
        f'viewBox="0 0 {_WIDTH:g} {height + top:g}"><style>{_STYLE}</style><rect width="100%" height="100%" fill="#fff"/>'
        f'{"".join(lines)}<g transform="translate(0 {top})">{body}</g></svg>\n'
    )
    file = path.with_suffix(".svg")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise StoreError(f"{file}: {error.strerror or error}: the picture was not written") from error
    return file


def _in_lines(title: str) -> list[str]:
    return textwrap.wrap("".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in title), _LINE_LETTERS)


def _steady_words(window: SteadyWindow | NoSteadyState) -> str:
    if isinstance(window, SteadyWindow):
        return f"steady state: {show_figure(window.start_s)} to {show_figure(window.end_s)} s (shaded)"
    return f"no steady state: {window.reason}" if window.reason else ""


def read_timeline(file: Path) -> RequestTimeline | None:
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
    return RequestTimeline(sent_s, done_s, failed, first_s, at_s, tokens, at_s[1:][inner], gaps_ms)


def draw_timeline(timeline: RequestTimeline, limit: int | None = None) -> str:
    """An SVG element for a page; every word in it is ours, every other thing a number.

    Args:
        timeline: what is drawn.
        limit: requests in flight at most, as asked; a dotted line.

    """
    body, height = _panels(timeline, None, limit)
    failed = int(timeline.is_failed.sum())
    said = f"{len(timeline.sent_s)} requests over {show_figure(max(timeline.end_s, 1e-6))} seconds, {failed} failed."
    return f'<svg class="strip" role="img" aria-label="{said}" viewBox="0 0 {_WIDTH:g} {height:g}">{body}</svg>'


def _panels(timeline: RequestTimeline, window: SteadyWindow | None, limit: int | None) -> tuple[str, float]:
    """(four panels under each other, their height)."""
    end_s = max(timeline.end_s, 1e-6)
    in_flight, rate = _in_flight(timeline, end_s), _tokens_per_second(timeline, end_s)
    panels = [
        _latency("TTFT, ms", timeline.sent_s, (timeline.first_s - timeline.sent_s) * 1e3, end_s),
        _latency("gap between frames, ms", timeline.gap_end_s, timeline.gap_ms, end_s),
        _steps("requests in flight", in_flight, limit),
        _steps("output, tok/s", rate),
    ]
    shade = "" if window is None else _shade(window, end_s)
    parts = [
        f'<g transform="translate({_LEFT:g} {_TOP + index * (_PANEL + _GAP):g})">{shade}'
        f'<path class="axis" d="M0 0V{_PANEL:g}H{_INNER:g}"/><text x="0" y="-6">{title}</text>'
        f'<text class="tick" x="-6" y="6">{show_figure(top)}</text><text class="tick" x="-6" y="{_PANEL:g}">0</text>{body}</g>'
        for index, (title, body, top) in enumerate(panels)
    ]
    failed_s = timeline.done_s[timeline.is_failed]
    if len(failed_s):
        crosses = "".join(f"M{_x(s, end_s):.0f} {_TOP - 3:g}l5 5m0-5l-5 5" for s in failed_s[:200])
        parts.append(f'<path class="failed" transform="translate({_LEFT:g} 0)" d="{crosses}"/>')
    height = _TOP + 4 * (_PANEL + _GAP) + 4
    said = f"{len(timeline.sent_s):,} requests" + (f", {len(failed_s):,} failed (crosses)" if len(failed_s) else "")
    parts.append(
        f'<text x="{_LEFT:g}" y="{height - 8:g}">0 s</text>'
        f'<text class="none" text-anchor="middle" x="{_WIDTH / 2:g}" y="{height - 8:g}">{said}</text>'
        f'<text class="tick" x="{_WIDTH - 8:g}" y="{height - 8:g}">{show_figure(end_s)} s</text>'
    )
    return "".join(parts), height


def _shade(window: SteadyWindow, end_s: float) -> str:
    start, end = float(_x(window.start_s, end_s)), float(_x(window.end_s, end_s))
    return f'<rect class="steady" x="{start:.1f}" y="0" width="{end - start:.1f}" height="{_PANEL:g}"/>'


def _tokens_per_second(timeline: RequestTimeline, end_s: float) -> Array:
    """[bins] output tokens per second."""
    return np.bincount(_bins(timeline.frame_s, end_s), timeline.frame_tokens, _BINS) * _BINS / end_s


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


def _steps(title: str, heights: Array, limit: int | None = None) -> tuple[str, str, float]:
    top = max(float(heights.max()), limit or 0, 1e-9)
    xs = np.arange(_BINS + 1) * _INNER / _BINS
    ys = _y(heights, top)
    path = (
        f"M0 {_PANEL:g}"
        + "".join([f"V{y}H{x}" for y, x in zip(_whole(ys), _whole(xs[1:]), strict=True)])
        + f"V{_PANEL:g}Z"
    )
    asked = "" if limit is None else f'<path class="asked" d="M0 {_PANEL * (1 - limit / top):.1f}H{_INNER:g}"/>'
    return title, f'<path class="area" d="{path}"/>{asked}', top


def _in_flight(timeline: RequestTimeline, end_s: float) -> Array:
    """[bins] requests in flight, averaged over each bin."""
    edges_s = np.linspace(0.0, end_s, _BINS + 1)
    began, ended = np.sort(timeline.sent_s), np.sort(timeline.done_s)
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
    return np.asarray(np.asarray(at_s) * (_INNER / end_s), np.float64)


def _y(values: Array, top: float) -> Array:
    return np.asarray(_PANEL * (1.0 - values / top), np.float64)


def _line(xs: Array, ys: Array) -> str:
    return "M" + "L".join([f"{x} {y}" for x, y in zip(_whole(xs), _whole(ys), strict=True)])


def _whole(values: Array) -> list[int]:
    return [int(value) for value in np.rint(values).tolist()]
