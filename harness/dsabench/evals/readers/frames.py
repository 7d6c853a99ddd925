"""Cells as a pandas data frame shows them, which is what the originals put into their prompts."""

from __future__ import annotations

from collections.abc import Callable, Sequence

_MISSING = frozenset(
    (
        *("", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN", "<NA>", "N/A"),
        *("NA", "NULL", "NaN", "None", "n/a", "nan", "null"),
    )
)
"""Texts that `pandas.read_csv` takes for a missing value by default."""


def shown_cell(text: str) -> str:
    """One cell of a column of texts: a choice that reads `None` stands in the prompt as `nan`."""
    return "nan" if text in _MISSING else text


def shown_column(cells: Sequence[str]) -> list[str]:
    """A column as its values are formatted: whole numbers or numbers where every cell is one, else text."""
    present = [cell for cell in cells if cell not in _MISSING]
    kinds: tuple[Callable[[str], object], ...] = (int, float) if len(present) == len(cells) else (float,)
    for kind in kinds if present else ():
        try:
            return ["nan" if cell in _MISSING else str(_number(kind, cell)) for cell in cells]
        except ValueError:
            continue
    return [shown_cell(cell) for cell in cells]


def _number(kind: Callable[[str], object], cell: str) -> object:
    if "_" in cell:  # Python's own reading of 1_000; pandas has none
        raise ValueError(cell)
    return kind(cell)
