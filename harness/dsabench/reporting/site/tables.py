"""Tuned tables: a row on the overview and a page each, with rule, evidence, picture and the file itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dsabench.emit.pr_body import rule_in_words
from dsabench.errors import InputError, StoreError
from dsabench.model.tuned_table import TunedTable
from dsabench.reporting.site.paper import Paper
from dsabench.results.tuned_tables import read_table

FOLDER = "tables"
_TABLE_MAX_BYTES = 1 << 20
_PICTURE_MAX_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class TableRow:
    """One tuned default."""

    file: Path
    table: TunedTable
    page: str
    picture: str | None
    """The tuner's figure beside the file, in the folder of the page; None where there is none."""

    @property
    def rule(self) -> str:
        """In words."""
        return rule_in_words(self.table.rule)

    @property
    def json(self) -> str:
        """As the runtime reads it."""
        return self.table.model_dump_json(indent=2, exclude_none=True)


def find_tables(places: Sequence[Path]) -> list[TableRow]:
    """Every tuned default at or below the places, once where copies of it lie; other JSON files are passed over."""
    found: list[tuple[Path, TunedTable]] = []
    for file in sorted({file for place in places if place.is_dir() for file in place.rglob("*.json")}):
        try:
            if file.stat().st_size > _TABLE_MAX_BYTES:
                continue
            table = read_table(file)
        except (InputError, OSError):
            continue
        copy = next((number for number, (_, known) in enumerate(found) if known == table), None)
        if copy is None:
            found.append((file, table))
        elif _has_picture(file) and not _has_picture(found[copy][0]):
            found[copy] = (file, table)
    rows = []
    for number, (file, table) in enumerate(found, start=1):
        name = f"{number}-{table.kind}-{table.heads_per_rank}"
        rows.append(TableRow(file, table, f"{FOLDER}/{name}.html", f"{name}.svg" if _has_picture(file) else None))
    return rows


def _has_picture(file: Path) -> bool:
    picture = file.with_suffix(".svg")
    return picture.is_file() and picture.stat().st_size <= _PICTURE_MAX_BYTES


def write_tables(paper: Paper, rows: Sequence[TableRow]) -> None:
    """Write the pages and copy the pictures; the folder is there.

    Raises:
        StoreError: disk full or read-only.

    """
    for row in rows:
        paper.write("table.html", row.page, row=row, table=row.table, evidence=row.table.evidence)
        if row.picture is not None:
            _copy(row.file.with_suffix(".svg"), paper.folder / FOLDER / row.picture)


def _copy(source: Path, target: Path) -> None:
    try:
        target.write_bytes(source.read_bytes())
    except OSError as error:
        raise StoreError(f"{target}: {error.strerror}: the report was not written") from error
