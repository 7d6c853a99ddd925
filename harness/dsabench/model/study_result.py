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
    """`value` is the geometric mean of the objective over the workloads; None if one of them failed.

    `violation` is the sum, over constraints and workloads, of the relative excess over the limit; 0.0 is feasible.
    """

    value: float | None
    violation: float
    why_not: str | None = None

    @property
    def is_feasible(self) -> bool:
        """Whether all workloads were measured and all constraints hold."""
        return self.value is not None and self.violation == 0.0


@dataclass(frozen=True, slots=True)
class ScoredSetting:
    """A setting that the search has measured completely."""

    spec: RuntimeSpec
    label: str
    score: ObjectiveScore


@dataclass(frozen=True, slots=True)
class Finalist:
    """A setting that was confirmed against the default."""

    candidate: ScoredSetting
    index: int
    """Counts from 0. Each finalist has its own boots of the default."""
    accuracy: Verdict | None = None
    """None without a gate, or if the setting gives the same answers as the default."""

    @property
    def is_less_accurate(self) -> bool:
        """Whether the gate refuses it. An inconclusive verdict does not: more questions may decide it."""
        return self.accuracy is not None and self.accuracy.verdict == "worse"


@dataclass(frozen=True, slots=True)
class AlternativeVerdicts:
    """A setting of `first` that was confirmed too. `verdicts` compare the best setting with it."""

    label: str
    spec: RuntimeSpec
    verdicts: tuple[Verdict, ...]
    turns: str = "in turns"
    """Whether the boots of both took turns, as the records show."""


@dataclass(frozen=True, slots=True)
class WorkLeft:
    """Boots and trials that are not recorded yet, if nothing fails."""

    search_boots: int = 0
    search_trials: int = 0
    confirm_boots: int = 0
    confirm_trials: int = 0
    seconds: float = 0.0
    """At the measured pace; assumed if nothing was measured."""

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
    """The result of a study. `best` is the best setting other than the default, even if it is not better."""

    environment: Environment
    """The environment of the records."""
    records: tuple[Record, ...]
    """All records of the round, also those of earlier runs. Verdicts and candidates use only these."""
    measured_now: int
    candidates: tuple[ScoredSetting, ...]
    best: ScoredSetting | None
    verdicts: tuple[Verdict, ...]
    stopped: str | None
    """Why the search ended before the space was exhausted; None if it did not."""
    gate: Verdict | None = None
    """Accuracy of the best setting compared with the default. Only a pass allows to recommend the setting."""
    rivals: tuple[AlternativeVerdicts, ...] = ()
    """Other confirmed settings, and how the best one compares with each."""
    passed_over: tuple[Finalist, ...] = ()
    """Finalists that were faster than `best` in the search, but less accurate than the default."""
    unconfirmed: int = 0
    """Boots that the confirmation lacks on all sides together: of `best`, or of the next best setting if the gate
    refused it.
    """

    turns: str = "in turns"
    """Whether the boots of the best setting and the default took turns, as the records show."""
    stopped_early: str = ""
    """How the confirmation ended before all its boots: `decided after 3 of 6 boots a side`."""
    level: float = 0.05
    """Chance of any false verdict, which a confirmation that may stop early shares out among its looks."""
    left: WorkLeft = WorkLeft()
    """The work that is missing under the limits, apart from the time limit."""

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
        """Counts from 0. `--again` starts the next one."""
        return max((record.round for record in self.records), default=0)

    @property
    def is_refused(self) -> bool:
        """Whether the gate refused the best setting."""
        return self.gate is not None and self.gate.verdict in ("worse", "inconclusive")
