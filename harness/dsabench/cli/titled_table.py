"""Tables under a title."""

from __future__ import annotations

from rich.console import Group
from rich.table import Table
from rich.text import Text


def titled(title: str, table: Table) -> Group:
    """The table under its title, which takes the whole width: rich would fold it into that of a narrow table."""
    return Group(Text(title, style="bold", overflow="fold"), table)
