"""Heat map of the fastest candidate over shapes: new tokens across, cached tokens up, one panel a model and rank.

Of a prefill step the tokens before the new ones are drawn, of a decode or verify step all that a sequence has.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

_ID = re.compile(r"(?P<panel>.+-h\d+)-b(?P<batch>\d+)-q(?P<q>\d+)-kv(?P<kv>\d+)")
_TIE = "no difference"
_MOST_DRAFTS = 4


@dataclass(frozen=True, slots=True)
class Cell:
    """The fastest candidate of a shape and its time as a multiple of the floor."""

    shape_id: str
    candidate: str
    times_floor: float
    is_tie: bool

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


def _height(cell: Cell, *, is_prefill: bool) -> int:
    _, _, new, kept = cell.place
    return kept - new if is_prefill else kept


def draw_map(title: str, cells: Sequence[Cell], file: Path) -> None:
    """Write one SVG."""
    import matplotlib as mpl  # noqa: PLC0415  (half a second)
    from matplotlib.figure import Figure  # noqa: PLC0415
    from matplotlib.patches import Patch, Rectangle  # noqa: PLC0415

    panels: dict[str, list[Cell]] = defaultdict(list)
    for cell in cells:
        panels[cell.place[0]].append(cell)
    is_prefill = any(cell.place[2] > _MOST_DRAFTS for cell in cells)
    words = sorted({cell.word for cell in cells} - {_TIE})
    colours = {_TIE: "#dddddd", **{word: f"C{index}" for index, word in enumerate(words)}}
    rows = sum(len({_height(m, is_prefill=is_prefill) for m in members}) for members in panels.values())
    figure = Figure(figsize=(9, 1.0 + 1.4 * len(panels) + 0.25 * rows), layout="constrained")
    figure.suptitle(f"{title}: fastest candidate, and its time as a multiple of the floor")
    for number, (panel, members) in enumerate(sorted(panels.items()), start=1):
        axes = figure.add_subplot(len(panels), 1, number)
        across = sorted({m.place[1] for m in members}, key=lambda text: [int(n) for n in re.findall(r"\d+", text)])
        up = sorted({_height(m, is_prefill=is_prefill) for m in members})
        for member in members:
            x, y = across.index(member.place[1]), up.index(_height(member, is_prefill=is_prefill))
            axes.add_patch(Rectangle((x - 0.5, y - 0.5), 1, 1, color=colours[member.word], alpha=0.6))
            axes.text(x, y, f"{member.times_floor:.1f}", ha="center", va="center", fontsize=7)
        axes.set(xlim=(-0.5, len(across) - 0.5), ylim=(-0.5, len(up) - 0.5), title=panel)
        axes.set_xticks(range(len(across)), across, rotation=45, fontsize=7)
        axes.set_yticks(range(len(up)), [f"{kv:,}" for kv in up], fontsize=7)
        axes.set(xlabel="sequences × new tokens", ylabel="tokens before them" if is_prefill else "cached tokens")
    handles = [Patch(color=colour, alpha=0.6, label=word) for word, colour in colours.items()]
    figure.legend(handles=handles, loc="outside lower center", ncols=3, fontsize=8)
    with mpl.rc_context({"svg.hashsalt": "dsabench"}):
        figure.savefig(file, format="svg", metadata={"Date": None})
