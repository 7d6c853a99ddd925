"""One line of the journal: what was asked, what ran, on what, what came out."""

from __future__ import annotations

from typing import Literal, NamedTuple

from pydantic import AwareDatetime, Field, JsonValue, model_validator

from dsabench.model.outcome import Outcome
from dsabench.model.runtime import Environment
from dsabench.model.trial import AnyTrial
from dsabench.model.value import FrozenMap, Value

SCHEMA_VERSION: Literal[1] = 1
# 1: first schema. A later version reads all earlier ones; tests/golden holds a journal of each.

Phase = Literal["search", "confirm", "gate"]


class Key(NamedTuple):
    """Only records with an equal key are the same measurement."""

    trial_id: str
    fingerprint: str
    occasion: int


class Record(Value):
    """One measurement of one trial."""

    schema_version: Literal[1] = SCHEMA_VERSION
    id: str
    """The trial's id."""
    occasion: int = Field(ge=0)
    """Counts repeats of the trial in this environment: confirmations, `--again`, the retry after a transient fault."""
    boot: str
    """uuid of the server process measured; the unit of replication. Of a refused setting it names no process."""
    study: str
    round: int = Field(0, ge=0)
    """`--again` starts the next round; a plain run completes the latest one."""
    phase: Phase = "search"
    trial: AnyTrial
    environment: Environment
    started_at: AwareDatetime
    duration_s: float
    boot_s: float | None = None
    """Seconds from start to ready of this boot."""
    resolved: FrozenMap[JsonValue] = Field(default_factory=dict)
    """What the runtime says it runs with."""
    labels: tuple[str, ...] = ()
    outcome: Outcome

    @model_validator(mode="after")
    def _id_fits(self) -> Record:
        if self.id != self.trial.id:
            raise ValueError("id is not the trial's")
        return self

    @property
    def is_refusal(self) -> bool:
        """Whether the rules forbade the setting, so that no boot was spent."""
        return self.outcome.kind == "failed" and self.outcome.stage == "plan"

    @property
    def key(self) -> Key:
        """(trial id, environment fingerprint, occasion)."""
        return Key(self.id, self.environment.fingerprint, self.occasion)
