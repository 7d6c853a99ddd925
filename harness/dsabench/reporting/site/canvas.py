"""matplotlib's SVG inside a page: colours follow the reader's theme, marks link to their records, text stays text."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Mapping
from html import escape
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Tokens that a stylesheet's variable takes the place of. Okabe and Ito's palette: told apart by colour-blind readers.
TEXT, QUIET, LINE = "#010101", "#020202", "#030303"
SERIES = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
_VARIABLES = {
    TEXT: "var(--text)",
    QUIET: "var(--quiet)",
    LINE: "var(--line)",
    **{colour: f"var(--c{index})" for index, colour in enumerate(SERIES, start=1)},
}
_TOKEN = re.compile("|".join(_VARIABLES))
_LINK = re.compile(r'<a xlink:href="([^"]*)"[^>]*>')
_HEAD = re.compile(r"^.*?(?=<svg)", re.DOTALL)
_SIZE = re.compile(r'(<svg[^>]*?) width="[^"]*"', re.DOTALL)
_HEIGHT = re.compile(r'(<svg[^>]*?) height="[^"]*"', re.DOTALL)
_METADATA = re.compile(r"<metadata>.*?</metadata>", re.DOTALL)

WIDTH_IN = 5.4
"""At a phone's 360 pixels the text is then still as large as print."""


def draw(
    name: str, words: str, plot: Callable[[Axes], None], *, height_in: float = 3.4, width_in: float = WIDTH_IN
) -> str:
    """An SVG element of one pair of axes.

    Args:
        name: unique in its page; ids inside the picture hang on it.
        words: what the picture shows, for those who cannot see it.
        plot: draws into the axes with this module's colours; links are set with `set_urls`, see `linked`.
        height_in: inches.
        width_in: inches.

    """
    from matplotlib import rc_context  # noqa: PLC0415  (half a second that only a report pays)
    from matplotlib.figure import Figure  # noqa: PLC0415

    with rc_context(_style(name)):
        figure = Figure(figsize=(width_in, height_in), layout="constrained")
        axes = figure.subplots()
        plot(axes)
        target = io.StringIO()
        figure.savefig(target, format="svg", transparent=True, metadata={"Date": None, "Creator": None}, dpi=120)
    return _themed(target.getvalue(), words)


def linked(svg: str, titles: Mapping[str, str]) -> str:
    """The picture with a tooltip for each link: page → its words."""

    def opened(found: re.Match[str]) -> str:
        words = titles.get(found[1])
        return f'<a href="{found[1]}">' + (f"<title>{escape(words)}</title>" if words else "")

    return _LINK.sub(opened, svg)


def _themed(svg: str, words: str) -> str:
    svg = _METADATA.sub("", _HEAD.sub("", svg))
    svg = _HEIGHT.sub(r"\1", _SIZE.sub(r"\1", svg))
    svg = svg.replace("<svg ", f'<svg role="img" aria-label="{escape(words, quote=True)}" ', 1)
    svg = re.sub(
        r' id="((?:figure|axes|patch|text|line2d|xtick|ytick|matplotlib|PathCollection|LineCollection|FillBetween|legend|QuadMesh)\w*\.?[\w.]*)"',
        "",
        svg,
    )
    return _TOKEN.sub(lambda found: _VARIABLES[found[0]], svg)


def _style(name: str) -> dict[Any, Any]:
    return {
        "svg.fonttype": "none",
        "svg.hashsalt": f"dsabench-{name}",
        "font.family": "sans-serif",
        "font.sans-serif": ["DejaVu Sans"],
        "font.size": 9,
        "text.color": TEXT,
        "text.parse_math": False,
        "axes.edgecolor": QUIET,
        "axes.labelcolor": TEXT,
        "axes.labelsize": 9,
        "axes.titlesize": 9,
        "axes.titlelocation": "left",
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "axes.axisbelow": True,
        "grid.color": LINE,
        "grid.linewidth": 0.6,
        "xtick.color": QUIET,
        "ytick.color": QUIET,
        "xtick.labelcolor": QUIET,
        "ytick.labelcolor": QUIET,
        "xtick.labelsize": 8,
        "ytick.labelsize": 8,
        "legend.frameon": False,
        "legend.fontsize": 8,
        "legend.labelcolor": TEXT,
        "lines.linewidth": 1.8,
        "lines.markersize": 5,
    }
