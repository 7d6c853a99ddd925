"""Write a picture of matplotlib as an SVG that is the same for the same numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from dsabench.errors import StoreError

if TYPE_CHECKING:
    from matplotlib.figure import Figure


_STYLE = {"svg.hashsalt": "dsabench", "font.size": 9, "axes.spines.top": False, "axes.spines.right": False}


@contextmanager
def svg_style(more: Mapping[str, Any] = MappingProxyType({})) -> Iterator[None]:
    """The look of our pictures while they are made and written; `more` are further settings of matplotlib."""
    from matplotlib import rc_context  # noqa: PLC0415  (half a second)

    style: dict[Any, Any] = {**_STYLE, **more}
    with rc_context(style):
        yield


def save_svg(figure: Figure, file: Path) -> Path:
    """Write it without a date.

    Raises:
        StoreError: the file cannot be written.

    """
    try:
        figure.savefig(file, format="svg", metadata={"Date": None})
    except OSError as error:
        raise StoreError(f"{file}: {error.strerror}: the picture was not written") from error
    return file
