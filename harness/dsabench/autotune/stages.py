"""The stages of an autotune, and the journal of what each of them did."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal, get_args

from pydantic import AwareDatetime, ValidationError

from dsabench.errors import InputError, nearest
from dsabench.kernelbench.records import append_line
from dsabench.model.value import Value

StageName = Literal[
    "doctor", "plan", "sweep", "flashmla-auto", "mha-threshold", "hisparse", "mtp", "proof", "report", "pr"
]
STAGES: tuple[StageName, ...] = get_args(StageName)
TUNES: dict[StageName, str] = {
    "flashmla-auto": "flashmla_auto",
    "mha-threshold": "mha_threshold",
    "hisparse": "hisparse",
    "mtp": "mtp",
}
"""A stage that makes tables → their kind."""

StageState = Literal["done", "refused", "open", "skipped", "failed"]
"""`refused`: nothing to recommend, for a stated reason. `open`: a limit ended it, and another run continues it."""

FILE_NAME = "stages.jsonl"


class StageRecord(Value):
    """One run of a stage."""

    stage: StageName
    state: StageState
    says: str
    """The outcome in one line."""
    seconds: float
    """Duration of this run."""
    measured: int
    """Trials and kernel times of this run."""
    started_at: AwareDatetime
    inputs: str | None = None
    """Digest of what the stage worked on; set where an equal digest means that nothing is to be done."""
    files: tuple[str, ...] = ()
    """What it wrote, below the folder of the results or elsewhere."""


def append_stage(folder: Path, record: StageRecord) -> None:
    """Write one line and sync it.

    Raises:
        StoreError: disk full or read-only.

    """
    append_line(folder / FILE_NAME, record.model_dump_json(exclude_none=True))


def read_stages(folder: Path) -> tuple[StageRecord, ...]:
    """Every run of every stage, in the order written. A torn line is left out."""
    try:
        lines = (folder / FILE_NAME).read_bytes().splitlines()
    except FileNotFoundError:
        return ()
    return tuple(record for line in lines if (record := _parsed(line)) is not None)


def _parsed(line: bytes) -> StageRecord | None:
    try:
        return StageRecord.model_validate(json.loads(line), strict=False)
    except (ValueError, ValidationError):
        return None


def choose_stages(only: Sequence[str], skip: Sequence[str], until: str | None) -> tuple[StageName, ...]:
    """The stages of `--only`, `--skip` and `--until`.

    Raises:
        InputError: there is no such stage, or none is left.

    """
    for option, names in (("--only", only), ("--skip", skip), ("--until", (until,) if until else ())):
        for name in names:
            if name not in STAGES:
                near = nearest(name, STAGES)
                raise InputError(
                    f"{option} {name}: no such stage{f'; did you mean {near}?' if near else ''} ({', '.join(STAGES)})"
                )
    upto = STAGES if until is None else STAGES[: _place(until) + 1]
    chosen = tuple(name for name in upto if (not only or name in only) and name not in skip)
    if not chosen:
        raise InputError("--only, --skip and --until leave no stage")
    return chosen


def _place(name: str) -> int:
    return next(place for place, stage in enumerate(STAGES) if stage == name)


def seconds_by_stage(records: Iterable[StageRecord]) -> dict[StageName, float]:
    """Seconds of each stage over all runs."""
    found: dict[StageName, float] = {}
    for record in records:
        found[record.stage] = found.get(record.stage, 0.0) + record.seconds
    return found
