"""Read the file of a tuned table."""

from __future__ import annotations

from pathlib import Path

from pydantic import ValidationError

from dsabench.errors import InputError
from dsabench.model.tuned_table import TunedTable


def read_table(path: Path) -> TunedTable:
    """Read one table.

    Raises:
        InputError: it is missing, or not a table; one line with the file and the first mistake.

    """
    try:
        return TunedTable.model_validate_json(path.read_bytes())
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise InputError(
            f"{path}: {place + ': ' if place else ''}{first['msg'].removeprefix('Value error, ')}"
        ) from error
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from error
