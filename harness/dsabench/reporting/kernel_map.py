"""Coloured tables of the fastest candidate over shapes: new tokens across, cached tokens down, one a model and rank.

Of a prefill step the tokens before the new ones count, of a decode or verify step all that a sequence has.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

_ID = re.compile(r"(?P<panel>.+-h\d+)-b(?P<batch>\d+)-q(?P<q>\d+)-kv(?P<kv>\d+)")
_TIE = "no difference"
_MOST_DRAFTS = 4
_COLOURS = ("#5ba3d0", "#f0a35e", "#5dbb94", "#d08fb8", "#c9b458", "#8f9bd6")
"""Light enough for black figures on them, told apart with red-green blindness too."""
_NEAR, _FAR = (237, 247, 255), (92, 163, 209)
"""Red, green, blue of an operator with one candidate: at the floor, and at ten times it or more."""


@dataclass(frozen=True, slots=True)
class HeatCell:
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
        """What stands in it: time as a multiple of the floor, and how much more the next candidate takes."""
        floor = f"{self.times_floor:,.0f}" if self.times_floor >= 100 else f"{self.times_floor:.1f}"
        return floor if self.lead is None else f"{floor} +{self.lead:,.0%}"


def natural(text: str) -> list[str | int]:
    """A key that sorts 16 before 1024."""
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", text)]


def heat_tables(cells: Sequence[HeatCell]) -> str:
    """HTML: what the colours mean, then a table a model and rank."""
    panels: dict[str, list[HeatCell]] = defaultdict(list)
    for cell in cells:
        panels[cell.place[0]].append(cell)
    is_prefill = any(cell.place[2] > _MOST_DRAFTS for cell in cells)
    compares = any(cell.lead is not None for cell in cells)
    words = sorted({cell.word for cell in cells} - {_TIE})
    colours = {word: _COLOURS[index % len(_COLOURS)] for index, word in enumerate(words)} | {_TIE: "#dddddd"}
    shown = [*words, *([_TIE] if any(cell.is_tie for cell in cells) else [])]
    legend = "".join(f"<span class=heat style='background:{colours[word]}'>{escape(word)}</span> " for word in shown)
    what = "time as a multiple of the floor"
    said = f"{what}, and how much more time the next candidate takes; the fastest: {legend}" if compares else what
    tables = [_table(name, panels[name], colours, is_prefill=is_prefill) for name in _order(panels)]
    return f"<p class=facts>{said}</p>{''.join(tables)}"


def _order(panels: Mapping[str, object]) -> list[str]:
    """Models by name, the rank with most heads first."""
    return sorted(panels, key=lambda panel: (panel.rpartition("-h")[0], -int(panel.rpartition("-h")[2] or 0)))


def _table(panel: str, cells: Sequence[HeatCell], colours: Mapping[str, str], *, is_prefill: bool) -> str:
    model, _, heads = panel.rpartition("-h")
    across = sorted({cell.place[1] for cell in cells}, key=natural)
    of_place = {(_kept(cell, is_prefill=is_prefill), cell.place[1]): cell for cell in cells}
    head = "".join(f"<th>{escape(step)}" for step in across)
    rows = "".join(
        f"<tr><th>{kept:,}" + "".join(_cell(of_place.get((kept, step)), colours) for step in across)
        for kept in sorted({kept for kept, _ in of_place})
    )
    corner = f"{'cached before' if is_prefill else 'cached tokens'} ↓, sequences × new tokens of each →"
    return (
        f"<h3>{escape(model)}, {escape(heads)} heads on the rank</h3>"
        f"<div class=wide><table class=map><caption>{corner}</caption><tr><th>{head}{rows}</table></div>"
    )


def _kept(cell: HeatCell, *, is_prefill: bool) -> int:
    _, _, new, kept = cell.place
    return kept - new if is_prefill else kept


def _cell(cell: HeatCell | None, colours: Mapping[str, str]) -> str:
    if cell is None:
        return "<td>"
    alone = cell.lead is None and not cell.is_tie
    colour = _shade(cell.times_floor) if alone else colours[cell.word]
    words = escape(f"{cell.shape_id}: {cell.word}", quote=True)
    return f"<td class=heat style='background:{colour}' title='{words}'>{escape(cell.figures)}"


def _shade(times_floor: float) -> str:
    """Darker the farther from the floor, on a logarithmic scale."""
    share = min(max(math.log10(max(times_floor, 1.0)), 0.0), 1.0)
    return "#" + "".join(f"{round(near + share * (far - near)):02x}" for near, far in zip(_NEAR, _FAR, strict=True))
