"""Table files: reading what was tuned, writing what a runtime reads."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from dsabench.emit.fit import require_emittable
from dsabench.emit.loader import KINDS
from dsabench.errors import InputError, StoreError
from dsabench.model.tuned_table import TunedTable
from dsabench.results.tuned_tables import read_table


@dataclass(frozen=True, slots=True)
class File:
    """A table and where it was read."""

    path: Path
    table: TunedTable


def read_tables(given: Sequence[str]) -> list[File]:
    """Tables of the files, and of all table files of the folders, that were named; each file once.

    Raises:
        InputError: nothing there, or not a table; one line with the file and the first mistake.

    """
    paths: list[Path] = []
    for name in given:
        place = Path(name)
        found = sorted(place.glob("*,*.json")) if place.is_dir() else [place]
        if not found:
            raise InputError(f"{place}: no table in this folder (their names look like kind,…,device_name=….json)")
        paths += found
    once = {os.path.realpath(path): path for path in paths}  # of a link to itself too: reading it says what is wrong
    return [File(path, read_table(path)) for path in once.values()]


Runtime = Literal["sglang", "reference"]
_READ_BY: dict[Runtime, tuple[tuple[str, ...], str]] = {
    "sglang": (KINDS, "flags of sglang say it already: --as command"),
    "reference": (("flashmla_auto", "mha_threshold"), "the reference runtime reads no tables of this kind"),
}
"""Runtime → the kinds of table that its code reads, and what to say of others."""


def read_committed(given: Sequence[str], *, allow_simulated: bool) -> list[File]:
    """The same of tables for a pull request to sglang, or to dsabench, whose reference runtime they are for.

    Raises:
        InputError: as `read_delivered`, or they are for both.

    """
    files = read_tables(given)
    return _require_delivered(files, files[0].table.runtime, allow_simulated=allow_simulated)


def read_delivered(given: Sequence[str], *, allow_simulated: bool) -> list[File]:
    """The same of tables for sglang's own code; every one may be emitted.

    Raises:
        InputError: as `read_tables`, or one that may not be emitted, or that flags say.

    """
    return _require_delivered(read_tables(given), "sglang", allow_simulated=allow_simulated)


def _require_delivered(files: list[File], runtime: Runtime, *, allow_simulated: bool) -> list[File]:
    kinds, otherwise = _READ_BY[runtime]
    for file in files:
        require_emittable(file.table, runtime, allow_simulated=allow_simulated)
        if file.table.kind not in kinds:
            raise InputError(f"{file.path}: {otherwise}")
    return files


def keys_of(files: Sequence[File]) -> list[str]:
    """The names under which a runtime looks for the tables.

    Raises:
        InputError: two of them have one key.

    """
    found: dict[str, Path] = {}
    for file in files:
        if (first := found.setdefault(file.table.file_name, file.path)) is not file.path:
            raise InputError(f"{first} and {file.path}: both have the key {file.table.file_name}; give one of them")
    return list(found)


def table_json(table: TunedTable) -> str:
    """As it stands in a file: fields in the order of the schema, absent ones left out."""
    return json.dumps(table.model_dump(mode="json", exclude_none=True), indent=2, ensure_ascii=False) + "\n"


def write_table(folder: Path, table: TunedTable) -> Path:
    """Write a table under the name that its key makes.

    Raises:
        StoreError: the folder or file cannot be written.

    """
    file = folder / table.file_name
    try:
        folder.mkdir(parents=True, exist_ok=True)
        beside = file.with_name(f".{file.name}.new")
        beside.write_text(table_json(table))
        beside.replace(file)
    except OSError as error:
        raise StoreError(f"{file}: {error.strerror}: the table was not written") from error
    return file
