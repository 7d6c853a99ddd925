"""Heat map of the fastest candidate over shapes: new tokens across, cached tokens up, one panel a model and rank.

Of a prefill step the tokens before the new ones are drawn, of a decode or verify step all that a sequence has.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_ID = re.compile(r"(?P<panel>.+-h\d+)-b(?P<batch>\d+)-q(?P<q>\d+)-kv(?P<kv>\d+)")
_TIE = "no difference"
_MOST_DRAFTS = 4
_COLOURS = ("#5ba3d0", "#f0a35e", "#5dbb94", "#d08fb8", "#c9b458", "#8f9bd6")
"""Light enough for black figures on them, told apart with red-green blindness too."""
_NEAR, _FAR = (0.93, 0.97, 1.0), (0.36, 0.64, 0.82)
"""Red, green, blue of an operator with one candidate: at the floor, and at ten times it or more."""
_CELL, _GAP = 0.34, 1.0
"""Inches: height of a row of cells; of what stands above and below a panel."""


@dataclass(frozen=True, slots=True)
class Cell:
    """The fastest candidate of a shape and its time as a multiple of the floor."""

    shape_id: str
    candidate: str
    times_floor: float
    is_tie: bool
    lead: float | None = None
    """How much more time the next candidate takes, as a share; None where there is none."""

    @property
    def place(self) -> tuple[str, str, int, int]:
        """Panel, batch × new tokens, new tokens and all tokens of a sequence."""
        match = _ID.fullmatch(self.shape_id)
        if match is None:
            return self.shape_id, "", 0, 0
        return match["panel"], f"{match['batch']}×{match['q']}", int(match["q"]), int(match["kv"])

    @property
    def word(self) -> str:
        """What the colour says."""
        return _TIE if self.is_tie else self.candidate

    @property
    def figures(self) -> str:
        """What stands in it."""
        floor = f"{self.times_floor:,.0f}" if self.times_floor >= 100 else f"{self.times_floor:.1f}"
        return floor if self.lead is None else f"{floor}\n+{self.lead:,.0%}"


def _shade(times_floor: float) -> tuple[float, float, float]:
    """Darker the farther from the floor, on a logarithmic scale."""
    share = min(max(math.log10(max(times_floor, 1.0)), 0.0), 1.0)
    red, green, blue = (near + share * (far - near) for near, far in zip(_NEAR, _FAR, strict=True))
    return red, green, blue


def _height(cell: Cell, *, is_prefill: bool) -> int:
    _, _, new, kept = cell.place
    return kept - new if is_prefill else kept


def natural(text: str) -> list[str | int]:
    """A key that sorts 16 before 1024."""
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", text)]


def draw_map(title: str, cells: Sequence[Cell], file: Path) -> None:
    """Write one SVG."""
    import matplotlib as mpl  # noqa: PLC0415  (half a second)
    from matplotlib.figure import Figure  # noqa: PLC0415
    from matplotlib.patches import Patch  # noqa: PLC0415

    panels: dict[str, list[Cell]] = defaultdict(list)
    for cell in cells:
        panels[cell.place[0]].append(cell)
    is_prefill = any(cell.place[2] > _MOST_DRAFTS for cell in cells)
    compares = any(cell.lead is not None for cell in cells)
    words = sorted({cell.word for cell in cells} - {_TIE})
    colours = {word: _COLOURS[index % len(_COLOURS)] for index, word in enumerate(words)}
    if any(cell.is_tie for cell in cells):
        colours[_TIE] = "#dddddd"
    rows = [len({_height(m, is_prefill=is_prefill) for m in panels[name]}) for name in _order(panels)]
    height = 1.1 + _CELL * sum(rows) + _GAP * len(rows)
    figure = Figure(figsize=(10, height), layout="constrained")
    figure.suptitle(_heading(title, compares=compares), fontsize=11)
    grid = figure.add_gridspec(len(rows), 1, height_ratios=[_CELL * count for count in rows])
    for number, name in enumerate(_order(panels)):
        axes = figure.add_subplot(grid[number])
        _draw_panel(axes, name, panels[name], colours, is_prefill=is_prefill)
        if number == len(rows) - 1:
            axes.set_xlabel("sequences × new tokens of each")
    if compares:
        handles = [Patch(color=colour, label=word) for word, colour in colours.items()]
        figure.legend(handles=handles, loc="outside lower center", ncols=4, fontsize=9, frameon=False)
    with mpl.rc_context({"svg.hashsalt": "dsabench"}):
        figure.savefig(file, format="svg", metadata={"Date": None})


def _heading(title: str, *, compares: bool) -> str:
    if not compares:
        return f"{title}: time as a multiple of the floor (darker: farther from it)"
    return f"{title}: the fastest candidate, its time as a multiple of the floor,\nand how much more time the next one takes"


def _order(panels: Sequence[str] | dict[str, list[Cell]]) -> list[str]:
    """Models by name, the rank with most heads first."""
    return sorted(panels, key=lambda panel: (panel.rpartition("-h")[0], -int(panel.rpartition("-h")[2] or 0)))


def _panel_title(panel: str) -> str:
    model, _, heads = panel.rpartition("-h")
    return f"{model}, {heads} heads on the rank"


def _draw_panel(axes: Axes, name: str, members: Sequence[Cell], colours: dict[str, str], *, is_prefill: bool) -> None:
    from matplotlib.patches import Rectangle  # noqa: PLC0415

    across = sorted({m.place[1] for m in members}, key=natural)
    up = sorted({_height(m, is_prefill=is_prefill) for m in members})
    for member in members:
        x, y = across.index(member.place[1]), up.index(_height(member, is_prefill=is_prefill))
        colour = _shade(member.times_floor) if member.lead is None and not member.is_tie else colours[member.word]
        axes.add_patch(Rectangle((x - 0.5, y - 0.5), 1, 1, facecolor=colour, edgecolor="white", linewidth=1))
        axes.text(x, y, member.figures, ha="center", va="center", fontsize=7, linespacing=1.1)
    axes.set(xlim=(-0.5, len(across) - 0.5), ylim=(-0.5, len(up) - 0.5))
    axes.set_title(_panel_title(name), fontsize=10, loc="left")
    axes.set_xticks(range(len(across)), across, rotation=45, fontsize=7)
    axes.set_yticks(range(len(up)), [f"{kv:,}" for kv in up], fontsize=7)
    axes.set_ylabel("cached before" if is_prefill else "cached tokens", fontsize=8)
    axes.tick_params(length=0)
    for side in axes.spines.values():
        side.set_visible(False)
