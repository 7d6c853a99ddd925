"""What a study found: settings with scores, finalists, verdicts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, NamedTuple

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

    def refused(self, by: AccuracyRefusal | None) -> ObjectiveScore:
        """The score of a setting that may not win for its accuracy; itself where nothing is said against it."""
        return self if by is None else replace(self, violation=self.violation + by.excess, why_not=by.why)


class AccuracyRefusal(NamedTuple):
    """Why a setting may not win: a gate refuses it, or the objective keeps the default's numerics and it has others."""

    excess: float
    """By how much the loss exceeds the margin, as a share of it; of several evals the sum. 1 where no eval was asked."""
    why: str


@dataclass(frozen=True, slots=True)
class ScoredSetting:
    """A setting that the search has measured completely."""

    spec: RuntimeSpec
    label: str
    score: ObjectiveScore
    fault: str | None = None
    """Why it has no number: a fault, `refused`, or `no_metric`."""
    boot_s: float = 0.0
    """Of its search, failed boots included."""
    trials_s: float = 0.0
    limits: frozenset[str] = frozenset()
    """What limited the server, under any workload; see `Bottleneck`."""


@dataclass(frozen=True, slots=True)
class FailingFamily:
    """Settings that the search puts last, since those of them that it tried failed."""

    setting: str
    """What they share, such as `kv_cache_dtype=fp8_e4m3 with prefill_backend=fa3`."""
    failed: int
    """Settings that failed."""
    faults: tuple[str, ...]
    left: int
    """Settings that were not tried."""


def deciding(gates: Sequence[Verdict]) -> Verdict | None:
    """The verdict that decides about several evals: the first that is worse, else the first that is inconclusive, else the first."""
    severity = ("worse", "inconclusive")
    return min(gates, key=lambda one: severity.index(one.verdict) if one.is_refusal else len(severity), default=None)


@dataclass(frozen=True, slots=True)
class Finalist:
    """A setting that was confirmed against the default."""

    candidate: ScoredSetting
    index: int
    """Counts from 0. Each finalist has its own boots of the default."""
    accuracy: tuple[Verdict, ...] = ()
    """The verdict of each eval of the gate; none without a gate, or if the setting gives the same answers as the default."""

    @property
    def is_less_accurate(self) -> bool:
        """Whether the gate refuses it. An inconclusive verdict does not: more questions may decide it."""
        return any(one.verdict == "worse" for one in self.accuracy)

    @property
    def is_refused(self) -> bool:
        """Whether it may not be recommended: the gate found it less accurate, or could not tell."""
        return any(one.is_refusal for one in self.accuracy)


@dataclass(frozen=True, slots=True)
class AlternativeVerdicts:
    """A setting of `first` that was confirmed too. `verdicts` compare the best setting with it."""

    label: str
    spec: RuntimeSpec
    verdicts: tuple[Verdict, ...]
    turns: str = "in turns"
    """Whether the boots of both took turns, as the records show."""


@dataclass(frozen=True, slots=True)
class ChangeWorth:
    """What one change of a winner gives: the winner against itself without it."""

    change: str
    """`knob=value`, as the winner has it."""
    without: RuntimeSpec
    verdicts: tuple[Verdict, ...]
    """Of the objective, one per workload; the candidate is the winner. Empty if nothing was measured."""
    decision: Literal["kept", "dropped", "open"]
    reason: str


@dataclass(frozen=True, slots=True)
class Ablation:
    """The winner beside itself without each of its changes."""

    winner: RuntimeSpec
    changes: tuple[ChangeWorth, ...]
    reduced: RuntimeSpec | None = None
    """The winner without the changes that may go; None if all stay, or as long as boots are missing."""
    together: RuntimeSpec | None = None
    """The winner without all of them, where that was a setting of its own to measure."""
    joint: tuple[Verdict, ...] = ()
    """The winner against `together`."""
    stays: str = ""
    """Why they may not go together, though each may alone: one did the work of the other. The least useful one goes."""
    not_adopted: str = ""
    """Why `reduced` is not the best setting of the study; empty if it is, or if there is none."""

    @property
    def is_complete(self) -> bool:
        """Whether all its boots are made."""
        is_open = any(one.decision == "open" for one in self.changes)
        return not is_open and (self.together is None or bool(self.joint))

    def says(self, default: RuntimeSpec) -> str:
        """The outcome in one or two sentences."""
        if not self.is_complete:
            return "Which changes it needs is not measured completely."
        if self.reduced is None:
            return f"It keeps all its {len(self.changes)} changes."
        label = self.reduced.changes(default)
        apart = f" Others may go alone, not together: {self.stays}." if self.stays else ""
        if self.not_adopted:
            return (
                f"Without what gives nothing it is {label}, which is not the best setting: {self.not_adopted}.{apart}"
            )
        return f"Without what gives nothing it is {label}, which is confirmed as the best setting.{apart}"


@dataclass(frozen=True, slots=True)
class WorkLeft:
    """Boots and trials that are not recorded yet, if nothing fails."""

    search_boots: int = 0
    search_trials: int = 0
    confirm_boots: int = 0
    confirm_trials: int = 0
    ablate_boots: int = 0
    """Of the ablation and of the confirmation of what remains, as far as the records tell yet."""
    ablate_trials: int = 0
    seconds: float = 0.0
    """At the measured pace; assumed if nothing was measured."""

    @property
    def boots(self) -> int:
        """Of all phases."""
        return self.search_boots + self.confirm_boots + self.ablate_boots

    @property
    def trials(self) -> int:
        """Of all phases."""
        return self.search_trials + self.confirm_trials + self.ablate_trials

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
    gates: tuple[Verdict, ...] = ()
    """Accuracy of the best setting compared with the default, one verdict for each eval of the gate. Only if it passes all of
    them may the setting be recommended.
    """
    accuracy: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """Eval of the gate → id of a setting → score, of all settings that answered it."""
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
    ablation: Ablation | None = None
    """What each change of the winner gives; None if that was not asked for, or if there is no winner with several changes."""
    families: tuple[FailingFamily, ...] = ()
    """What `gp` put last."""
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
    def gate(self) -> Verdict | None:
        """The verdict of the gate that decides: the worst of them. None where nothing was asked."""
        return deciding(self.gates)

    @property
    def is_refused(self) -> bool:
        """Whether the gate refused the best setting."""
        return any(one.is_refusal for one in self.gates)
