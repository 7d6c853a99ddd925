"""Two measurements of one candidate on one case, and whether they are told apart."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from dsabench.microbench.measured import append_line
from dsabench.microbench.summary import Times, are_apart
from dsabench.model.environment import Environment
from dsabench.model.value import Value

FILE_NAME = "twice.jsonl"


class Pair(Value):
    """Medians in microseconds."""

    schema_version: Literal[1] = 1
    operator: str
    candidate: str
    shape_id: str
    dtype: str
    first_us: float
    second_us: float
    is_apart: bool
    fingerprint: str

    @property
    def ratio(self) -> float:
        """Second to first."""
        return self.second_us / self.first_us

    @classmethod
    def of(cls, said: dict[str, Any], environment: Environment) -> Pair | None:
        """Of a worker's line; None where one of the two gave no number."""
        first, second = said["first"], said["second"]
        if first["status"] != "ok" or second["status"] != "ok":
            return None
        a, b = (
            Times(*(t[name] for name in ("median_us", "mad_us", "low_us", "high_us", "n"))) for t in (first, second)
        )
        return cls(
            operator=said["operator"],
            candidate=said["candidate"],
            shape_id=said["shape_id"],
            dtype=said["dtype"],
            first_us=a.median_us,
            second_us=b.median_us,
            is_apart=are_apart(a, b),
            fingerprint=environment.fingerprint,
        )


def append_pair(folder: Path, pair: Pair) -> None:
    """Write one line and sync it.

    Raises:
        StoreError: disk full or read-only.

    """
    append_line(folder / FILE_NAME, pair.model_dump_json())
