"""The records of one study in one environment: what is done, what is under way, which boots count."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence

from dsabench.config.specs import StudyConfig
from dsabench.model.environment import Environment
from dsabench.model.record import AnyTrial, Failed, Phase, Record, Trial
from dsabench.model.runtime import RuntimeSpec
from dsabench.model.study import Assignment
from dsabench.model.value import Value
from dsabench.model.workload import Workload


def settle(records: Sequence[Record]) -> Iterator[Record]:
    """Of one trial's records in order those that count: a transient fault is settled by its one retry only."""
    waiting = False
    for record in records:
        retryable = isinstance(record.outcome, Failed) and record.outcome.transient
        if retryable and not waiting:
            waiting = True
            continue
        waiting = False
        yield record


def finished_boots(config: StudyConfig, records: Iterable[Record]) -> set[str]:
    """The boots of one round that failed, or that recorded every trial which their setting lacked when they began.

    The others were interrupted, or their records were lost: another boot makes up for them. A journal does not say what
    a boot was begun for; that follows from what had been recorded before it, as it did then.
    """
    finished: set[str] = set()
    earlier: dict[tuple[str, str], list[Record]] = defaultdict(list)
    searched: set[tuple[str, str]] = set()
    for boot in _in_order(records):
        first = boot[0]
        spec_id, phase = first.trial.runtime.id, first.phase
        of_setting = earlier[spec_id, phase]
        lacking = _lacking(_settled(config, of_setting))
        if phase == "search" and config.budget.max_trials is not None:
            lacking = lacking[: max(0, config.budget.max_trials - len(searched))]
        of_setting += boot
        if phase == "search":
            searched.update((spec_id, name) for name, count in _settled(config, of_setting).items() if count)
        failed = any(isinstance(record.outcome, Failed) for record in boot)
        if failed or {record.trial.workload.name for record in boot}.issuperset(lacking):
            finished.add(first.boot)
    return finished


def _in_order(records: Iterable[Record]) -> list[list[Record]]:
    """The records of each boot, in the order in which the boots' first trials began."""
    boots: dict[str, list[Record]] = defaultdict(list)
    for record in sorted(records, key=lambda record: record.started_at):
        boots[record.boot].append(record)
    return list(boots.values())


def _settled(config: StudyConfig, records: Sequence[Record]) -> dict[str, int]:
    """How many of a setting's records count, by workload."""
    return {
        workload.name: sum(1 for _ in settle([one for one in records if one.trial.workload == workload]))
        for workload in config.workloads
    }


def _lacking(settled: Mapping[str, int]) -> list[str]:
    """The workloads that the next boot takes: those with the fewest records."""
    fewest = min(settled.values())
    return [name for name, count in settled.items() if count == fewest]


def measured_default(config: StudyConfig, specs: Sequence[RuntimeSpec]) -> RuntimeSpec | None:
    """The config's default, be it with a knob that every setting has and the config does not name; None where it was not measured.

    `tune hisparse` pins the device pool so, to one size or to each setting's own.
    """
    if not specs:
        return None
    wanted = config.default
    axes = {axis.name for axis in config.space.axes}
    pinned = set.intersection(*(set(spec.knobs) for spec in specs)) - set(wanted.knobs) - axes
    for spec in specs:
        named = {name: value for name, value in spec.knobs.items() if name not in pinned}
        if named == wanted.knobs and spec.model_copy(update={"knobs": wanted.knobs}) == wanted:
            return spec
    return None


_FIRST_ROUND = 0


class StudyRecords:
    """The records of one study in one environment, grown as records are written.

    A record belongs to the study when its trial could come from the study's config: the base plus values of its axes,
    under one of its workloads. So a config that gained an axis value keeps all it has measured.

    Reservations are boots under way in other processes: they will be records soon.
    """

    def __init__(
        self,
        config: StudyConfig,
        fingerprint: str,
        records: Iterable[Record],
        reservations: Sequence[BootReservation] = (),
    ) -> None:
        self.config = config
        self.reservations = tuple(reservations)
        self._fingerprint = fingerprint
        self._workloads = set(config.workloads)
        self._all: dict[str, list[Record]] = {}
        self._assignments: dict[str, Assignment] = {}
        for record in records:
            self.add(record)

    def add(self, record: Record) -> None:
        """Take in one record; those of other environments or other studies are left out."""
        if record.environment.fingerprint != self._fingerprint or record.trial.workload not in self._workloads:
            return
        assignment = _assignment_of(self.config, record.trial.runtime)
        if assignment is None:
            return
        self._assignments[record.trial.runtime.id] = assignment
        self._all.setdefault(record.id, []).append(record)

    @property
    def records(self) -> tuple[Record, ...]:
        """Every record of the study, in the order written per trial."""
        return tuple(record for records in self._all.values() for record in records)

    @property
    def latest_round(self) -> int:
        """The round that a plain run completes."""
        return max((record.round for record in self.records), default=_FIRST_ROUND)

    def next_occasion(self, trial: Trial) -> int:
        """One more than the highest recorded or reserved."""
        recorded = [record.occasion for record in self._all.get(trial.id, ())]
        reserved = [one.occasion for held in self.reservations for one in held.trials if one.trial == trial.id]
        return max((*recorded, *reserved), default=-1) + 1

    def settled(self, trial: AnyTrial, phase: Phase, round_: int) -> tuple[Record, ...]:
        """The records that count, one for each boot asked for: a transient fault is settled by its one retry only."""
        of_phase = [r for r in self._all.get(trial.id, ()) if r.phase == phase and r.round == round_]
        return tuple(settle(sorted(of_phase, key=lambda r: r.occasion)))

    def searched(self, round_: int) -> Mapping[str, Assignment]:
        """Spec id → assignment of every setting with a search record of the round, in the order first measured."""
        first: dict[str, str] = {}
        for record in self.records:
            if record.phase == "search" and record.round == round_:
                spec_id = record.trial.runtime.id
                started = record.started_at.isoformat()
                first[spec_id] = min(started, first.get(spec_id, started))
        return {spec_id: self._assignments[spec_id] for spec_id in sorted(first, key=lambda key: first[key])}

    def of_setting(self, spec: RuntimeSpec, phase: Phase, round_: int) -> dict[str, tuple[Record, ...]]:
        """Workload name → settled records."""
        return {
            workload.name: self.settled(Trial(runtime=spec, workload=workload), phase, round_)
            for workload in self.config.workloads
        }

    def missing(self, spec: RuntimeSpec, phase: Phase, round_: int, boots: int = 1) -> list[Workload]:
        """The workloads that this setting still needs for its `boots`-th settled record."""
        settled = self.of_setting(spec, phase, round_)
        return [workload for workload in self.config.workloads if len(settled[workload.name]) < boots]

    def left(self, spec: RuntimeSpec, phase: Phase, round_: int, boots: int = 1) -> list[Workload]:
        """What is missing and not reserved either: for whoever looks for something to do."""
        under_way = [one.trial for one in self.under_way(phase, round_)]
        settled = self.of_setting(spec, phase, round_)

        def had(workload: Workload) -> int:
            return len(settled[workload.name]) + under_way.count(Trial(runtime=spec, workload=workload).id)

        return [workload for workload in self.config.workloads if had(workload) < boots]

    def under_way(self, phase: Phase, round_: int) -> list[ReservedTrial]:
        """Reserved trials without a record yet."""
        held = [one for one in self.reservations if one.phase == phase and one.round == round_]
        return [one for reservation in held for one in reservation.trials if self._record_of(one) is None]

    def _record_of(self, reserved: ReservedTrial) -> Record | None:
        return next((one for one in self._all.get(reserved.trial, ()) if one.occasion == reserved.occasion), None)

    def boots(self, round_: int, phase: Phase | None = None) -> int:
        """Boots that this round has used: finished ones, failed ones and those under way.

        One that was interrupted used none, nor did a refused setting.
        """
        asked = [record for record in self.records if record.round == round_ and phase in (None, record.phase)]
        used = finished_boots(self.config, [record for record in asked if not record.is_refusal])
        held = [one for one in self.reservations if one.round == round_ and phase in (None, one.phase)]
        return len(used) + sum(not self._is_over(one, used) for one in held)

    def _is_over(self, reservation: BootReservation, used: Container[str]) -> bool:
        """Whether the boot counts by its records already, while its process still stops the server."""
        records = (self._record_of(one) for one in reservation.trials)
        return any(record is not None and (record.is_refusal or record.boot in used) for record in records)


def environments(config: StudyConfig, records: Iterable[Record]) -> list[Environment]:
    """Those in which something of the study was measured, by fingerprint; the one of its last record comes last."""
    found: dict[str, Environment] = {}
    for record in records:
        if record.trial.workload in config.workloads and _assignment_of(config, record.trial.runtime) is not None:
            found.pop(record.environment.fingerprint, None)
            found[record.environment.fingerprint] = record.environment
    return list(found.values())


def _assignment_of(config: StudyConfig, spec: RuntimeSpec) -> Assignment | None:
    """The axes' values that make this spec, or None when no assignment of the config does."""
    base = config.default.knobs
    axes = {axis.name: axis.values for axis in config.space.axes}
    chosen = {name: value for name, value in spec.knobs.items() if name in axes}
    if config.spec(chosen) != spec:
        return None
    if all(value in axes[name] or value == base.get(name) for name, value in chosen.items()):
        return chosen
    return None


class ReservedTrial(Value):
    """One trial of a boot under way, and the occasion it will be recorded as."""

    trial: str
    occasion: int
    turn: int | None = None


class BootReservation(Value):
    """A boot under way."""

    spec: RuntimeSpec
    phase: Phase
    round: int
    trials: tuple[ReservedTrial, ...]


def describe(records: StudyRecords, spec: RuntimeSpec) -> str:
    """What differs from the default, as `knob=value knob=value`; `default` when nothing does.

    A conditional axis with a single value says nothing that its condition does not.
    """
    space = records.config.space
    implied = {axis.name for axis in space.axes if len(axis.values) == 1 and axis.name in space.when}
    return spec.changes(records.config.default, left_out=implied)
