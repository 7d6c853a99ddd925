"""Finding tuned tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from dsabench.errors import InputError
from dsabench.model.tuned_table import ConstantRule, GridRule, KernelRule, RatioRule, TunedTable, table_file_name
from dsabench.results.tuned_tables import read_table

FOLDER_VARIABLE = "SGLANG_DSA_CONFIG_DIR"
SHIPPED = Path(__file__).with_name("tables_shipped")
"""Folder of the tables that come with the runtime; `emit` writes new ones there."""
_RATIO = RatioRule(kv_per_new_token=512)


@dataclass(frozen=True, slots=True)
class TableKey:
    """What a table is looked up by; its runtime is always `reference`."""

    heads_per_rank: int
    index_topk: int
    device: str
    kv_cache_dtype: Literal["bfloat16", "fp8_e4m3"]

    def file_name(self, kind: str) -> str:
        """Name of the file that holds the table."""
        return table_file_name(kind, self.heads_per_rank, self.index_topk, self.device, self.kv_cache_dtype)


@dataclass(frozen=True, slots=True)
class FoundTable:
    """A table and the file it came from."""

    table: TunedTable
    path: Path

    @property
    def source(self) -> str:
        """How records name it: the path as given, and no path of the installation for a shipped one."""
        return f"shipped: {self.path.name}" if self.path.parent == SHIPPED else str(self.path)


def find(kind: Literal["flashmla_auto", "mha_threshold"], key: TableKey, env: Mapping[str, str]) -> FoundTable | None:
    """The table of the folder that the environment names, else the shipped one, else None.

    Raises:
        InputError: the folder or the table is unusable; one line with the file and the first mistake.

    """
    folders = [SHIPPED]
    if given := env.get(FOLDER_VARIABLE):
        if not Path(given).is_dir():
            raise InputError(f"{FOLDER_VARIABLE}: {given}: no such folder")
        folders.insert(0, Path(given))
    for folder in folders:
        path = folder / key.file_name(kind)
        if path.is_file():
            return FoundTable(_read(path, kind, key), path)
    return None


def kernel_rule(found: FoundTable | None) -> KernelRule:
    """The rule in force for `flashmla_auto`: the table's, or the runtime's constant ratio."""
    if found is None:
        return _RATIO
    rule = found.table.rule
    assert isinstance(rule, ConstantRule | RatioRule | GridRule), "the table's own check ties the form to the kind"
    return rule


def _read(path: Path, kind: str, key: TableKey) -> TunedTable:
    table = read_table(path)
    inside = TableKey(table.heads_per_rank, table.index_topk, table.device, table.kv_cache_dtype)
    if table.kind != kind or table.runtime != "reference" or inside != key:
        raise InputError(f"{path}: its content is for {table.runtime}, {table.file_name}")
    return table
