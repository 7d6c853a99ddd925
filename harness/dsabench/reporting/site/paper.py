"""Templates and files: the only place that turns values into HTML. Everything is escaped unless it is an SVG of ours."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

from dsabench.errors import StoreError
from dsabench.reporting.numbers import show_count, show_date, show_figure, show_percent, show_share
from dsabench.reporting.site.tradeoff import unit_of

if TYPE_CHECKING:
    from jinja2 import Environment

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
_STATIC = ("site.css", "site.js")


@dataclass(frozen=True)
class Paper:
    """The folder written to, and what every page shows."""

    folder: Path
    common: Mapping[str, object]
    """`version`, `sources`, `nav`."""
    _templates: Environment = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_templates", _environment())

    def write(self, template: str, page: str, **values: object) -> None:
        """Render one page at a path relative to the folder.

        Raises:
            StoreError: disk full or read-only.

        """
        root = "../" * page.count("/")
        html = self._templates.get_template(template).render(root=root, **self.common, **values)
        self.write_text(page, html)

    def write_text(self, page: str, text: str) -> None:
        """Write a file of the site."""
        file = self.folder / page
        try:
            file.write_text(text, encoding="utf-8", errors="replace")
        except OSError as error:
            raise StoreError(f"{file}: {error.strerror}: the report was not written") from error

    def prepare(self, *folders: str) -> None:
        """Make the folders and put style and script there."""
        try:
            for name in ("", *folders):
                (self.folder / name).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(f"{self.folder}: {error.strerror}: the report was not written") from error
        for name in _STATIC:
            self.write_text(name, (resources.files(__package__) / "static" / name).read_text(encoding="utf-8"))


def _environment() -> Environment:
    import jinja2  # noqa: PLC0415  (a tenth of a second that only a report pays)

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(str(resources.files(__package__) / "templates")),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    filters: dict[str, Callable[..., object]] = {
        "show": show_figure,
        "percent": show_percent,
        "share": show_share,
        "count": show_count,
        "date": show_date,
        "cut": cut,
        "short": short,
        "unit": unit_of,
    }
    environment.filters.update(filters)
    return environment


def cut(text: object, limit: int) -> str:
    """Beginning and end of a long text, without control characters that a page cannot hold."""
    whole = _CONTROL.sub("\N{REPLACEMENT CHARACTER}", str(text))
    if len(whole) <= limit:
        return whole
    half = limit // 2
    return f"{whole[:half]}\n… {len(whole) - limit:,} characters left out …\n{whole[-half:]}"


def short(model: str) -> str:
    """The last part of a path."""
    return model.rstrip("/").rpartition("/")[2] or model
