"""What a study found: settings with scores, finalists, verdicts."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from dsabench.model.environment import Environment
from dsabench.model.record import Record
from dsabench.model.runtime import RuntimeSpec
from dsabench.model.verdict import Verdict

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, slots=True)
class ObjectiveScore:
    """`value` is the geometric mean of the objective over the workloads; None when any of them failed.

    `violation` sums, over constraints and workloads, by how much of its limit each is exceeded; 0.0 is feasible.
    """

    value: float | None
    violation: float
    why_not: str | None = None

    @property
    def is_feasible(self) -> bool:
        """Measured everywhere and inside every constraint."""
        return self.value is not None and self.violation == 0.0


@dataclass(frozen=True, slots=True)
class ScoredSetting:
    """A setting that the search has measured completely."""

    spec: RuntimeSpec
    label: str
    score: ObjectiveScore


@dataclass(frozen=True, slots=True)
class Finalist:
    """A setting that was held against the default."""

    candidate: ScoredSetting
    index: int
    """Counts from 0; each has boots of the default of its own."""
    accuracy: Verdict | None = None
    """None where there is no gate, or the setting answers as the default does."""

    @property
    def is_less_accurate(self) -> bool:
        """Whether the gate says no; an inconclusive one stays in, for further questions may decide it."""
        return self.accuracy is not None and self.accuracy.verdict == "worse"


@dataclass(frozen=True, slots=True)
class AlternativeVerdicts:
    """A setting of `first` that was confirmed too. `verdicts` are those of the best setting against it."""

    label: str
    spec: RuntimeSpec
    verdicts: tuple[Verdict, ...]
    turns: str = "in turns"
    """How the boots of both stood, as the records show it."""


@dataclass(frozen=True, slots=True)
class WorkLeft:
    """Boots and trials that are not recorded yet, if nothing fails."""

    search_boots: int = 0
    search_trials: int = 0
    confirm_boots: int = 0
    confirm_trials: int = 0
    seconds: float = 0.0
    """At the measured pace, or as assumed where nothing was measured."""

    @property
    def boots(self) -> int:
        """Of search and confirmation."""
        return self.search_boots + self.confirm_boots

    @property
    def trials(self) -> int:
        """Of search and confirmation."""
        return self.search_trials + self.confirm_trials

    def taking(self, seconds: float) -> WorkLeft:
        """The same work with its time."""
        return replace(self, seconds=seconds)


@dataclass(frozen=True, slots=True)
class StudyResult:
    """What a sweep came to. `best` is the best setting other than the default, whether it won or not."""

    environment: Environment
    """Of the records."""
    records: tuple[Record, ...]
    """All records of the round, earlier runs' included. Verdicts and candidates rest on no others."""
    measured_now: int
    candidates: tuple[ScoredSetting, ...]
    best: ScoredSetting | None
    verdicts: tuple[Verdict, ...]
    stopped: str | None
    """Why the search ended before its space was exhausted."""
    gate: Verdict | None = None
    """Accuracy of the best setting against the default's; anything but a pass takes the recommendation away."""
    rivals: tuple[AlternativeVerdicts, ...] = ()
    """The other settings that were confirmed, and how the best stands against each."""
    passed_over: tuple[Finalist, ...] = ()
    """Finalists that were faster than `best` in the search, and less accurate than the default."""
    unconfirmed: int = 0
    """Boots that the confirmation lacks, all sides together: of `best`, whose verdicts then rest on fewer than were asked
    for, or of the next best setting where the gate refused it."""

    turns: str = "in turns"
    """How the boots of the best setting and of the default stood, as the records show it."""
    left: WorkLeft = WorkLeft()
    """What the study lacks under its limits, that of time left out."""

    def to_frame(self, table: Literal["settings", "verdicts"] = "settings") -> pd.DataFrame:
        """The settings of the search, or the verdicts of the confirmation, as a pandas DataFrame."""
        import pandas as pd  # noqa: PLC0415  (a third of a second, which only a notebook pays)

        if table == "verdicts":
            return pd.DataFrame([verdict.model_dump() for verdict in self.verdicts])
        rows = [
            {
                "setting": one.label,
                **{f"knob.{name}": value for name, value in one.spec.knobs.items()},
                "value": one.score.value,
                "is_feasible": one.score.is_feasible,
                "why_not": one.score.why_not,
                "is_best": self.best is not None and one.spec == self.best.spec,
            }
            for one in self.candidates
        ]
        return pd.DataFrame(rows).convert_dtypes()

    @property
    def round(self) -> int:
        """Counts from 0; `--again` begins another."""
        return max((record.round for record in self.records), default=0)

    @property
    def is_refused(self) -> bool:
        """Whether the gate did not let the best setting pass."""
        return self.gate is not None and self.gate.verdict in ("worse", "inconclusive")
