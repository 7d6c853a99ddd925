"""The records of one study in one environment: what is done, what is under way, and which boots count."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from dsabench.config.specs import StudyConfig
from dsabench.model.environment import Environment
from dsabench.model.record import AnyTrial, Failed, Phase, Record, Scored, Trial
from dsabench.model.runtime import RuntimeSpec
from dsabench.model.study import Assignment
from dsabench.model.study_result import AccuracyRefusal
from dsabench.model.value import Value
from dsabench.model.workload import Workload


def settle(records: Sequence[Record]) -> Iterator[Record]:
    """Yield the records of one trial that count. After a transient fault only its single retry counts."""
    waiting = False
    for record in records:
        retryable = isinstance(record.outcome, Failed) and record.outcome.transient
        if retryable and not waiting:
            waiting = True
            continue
        waiting = False
        yield record


def finished_boots(config: StudyConfig, records: Iterable[Record]) -> set[str]:
    """The complete boots of one round: those that failed, or that recorded every trial which their first setting lacked.

    Others were interrupted or lost records, so another boot repeats them. The journal does not store the plan of a
    boot; it follows from the records that existed before.
    """
    finished: set[str] = set()
    earlier: dict[tuple[str, str], list[Record]] = defaultdict(list)
    searched: set[tuple[str, str]] = set()
    for boot in _in_order(records):
        first = boot[0]
        spec_id, phase = first.trial.runtime.id, first.phase
        of_setting = earlier[spec_id, phase]
        lacking = _lacking(_settled(config, of_setting, phase))
        if phase == "search" and config.budget.max_trials is not None:
            lacking = lacking[: max(0, config.budget.max_trials - len(searched))]
        of_setting += boot
        if phase == "search":
            searched.update((spec_id, name) for name, count in _settled(config, of_setting, phase).items() if count)
        failed = any(isinstance(record.outcome, Failed) for record in boot)
        if failed or {record.trial.workload.name for record in boot}.issuperset(lacking):
            finished.add(first.boot)
    return finished


def _in_order(records: Iterable[Record]) -> list[list[Record]]:
    """The records of each setting in each boot, ordered by their start."""
    boots: dict[tuple[str, str], list[Record]] = defaultdict(list)
    for record in sorted(records, key=lambda record: record.started_at):
        boots[record.boot, record.trial.runtime.id].append(record)
    return list(boots.values())


def _settled(config: StudyConfig, records: Sequence[Record], phase: Phase) -> dict[str, int]:
    """Number of counted records of a setting per workload."""
    return {
        workload.name: sum(1 for _ in settle([one for one in records if one.trial.workload == workload]))
        for workload in config.workloads_of(phase)
    }


def _lacking(settled: Mapping[str, int]) -> list[str]:
    """The workloads of the next boot: those with the fewest records."""
    fewest = min(settled.values())
    return [name for name, count in settled.items() if count == fewest]


def measured_default(config: StudyConfig, specs: Sequence[RuntimeSpec]) -> RuntimeSpec | None:
    """The config's default as it was measured: possibly with a knob that all settings share and the config does not
    name.

    `tune hisparse` fixes the size of the device pool this way. None if the default was not measured.
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
    """The records of one study in one environment.

    A record belongs to the study if its trial could come from the config: base settings plus values of the axes,
    under one of the workloads. A config with a new axis value therefore keeps all earlier records.

    `refusals` are the settings (ids of specs) of the running round that the gate has refused in the search.

    `machine` is where the next boot will be; None where nothing will be booted.

    Reservations are boots under way in other processes. They will become records. `running` is what a server of this process
    runs with, when the question is whether to change it or to leave it.
    """

    def __init__(
        self,
        config: StudyConfig,
        fingerprint: str,
        records: Iterable[Record],
        reservations: Sequence[BootReservation] = (),
        running: RuntimeSpec | None = None,
    ) -> None:
        self.config = config
        self.refusals: Mapping[str, AccuracyRefusal] = {}
        self.reservations = tuple(reservations)
        self.running = running
        self.machine: str | None = None
        self._fingerprint = fingerprint
        self._workloads = config.recorded_workloads
        self._all: dict[str, list[Record]] = {}
        self._evals: list[Record] = []
        self._assignments: dict[str, Assignment] = {}
        for record in records:
            self.add(record)

    def add(self, record: Record) -> None:
        """Add a record. Records of other environments or studies are ignored."""
        is_load = record.trial.workload in self._workloads
        if record.environment.fingerprint != self._fingerprint or not (is_load or record.phase == "gate"):
            return
        assignment = assignment_of(self.config, record.trial.runtime)
        if assignment is None:
            return
        if not is_load:
            self._evals.append(record)
            return
        self._assignments[record.trial.runtime.id] = assignment
        self._all.setdefault(record.id, []).append(record)

    @property
    def records(self) -> tuple[Record, ...]:
        """Every record of the study, grouped by trial in written order."""
        return tuple(record for records in self._all.values() for record in records)

    @property
    def scored(self) -> tuple[Record, ...]:
        """The evals of the gate in which a setting of the study has a score."""
        return tuple(record for record in self._evals if isinstance(record.outcome, Scored))

    def gpu_seconds(self, round_: int, gpus: Callable[[RuntimeSpec], int]) -> float:
        """What a round has taken, evals of the gate included; see `gpu_seconds`."""
        return gpu_seconds([record for record in (*self.records, *self._evals) if record.round == round_], gpus)

    @property
    def latest_round(self) -> int:
        """The round that a run without --again completes."""
        return max((record.round for record in self.records), default=_FIRST_ROUND)

    def next_occasion(self, trial: Trial) -> int:
        """One more than the highest occasion that is recorded or reserved."""
        recorded = [record.occasion for record in self._all.get(trial.id, ())]
        reserved = [one.occasion for held in self.reservations for one in held.trials if one.trial == trial.id]
        return max((*recorded, *reserved), default=-1) + 1

    def settled(self, trial: AnyTrial, phase: Phase, round_: int) -> tuple[Record, ...]:
        """The records that count, one per boot. After a transient fault only its single retry counts; of a turn that began again on
        another machine, only its last boot.
        """
        of_phase = [r for r in self._all.get(trial.id, ()) if r.phase == phase and r.round == round_]
        found = list(settle(sorted(of_phase, key=lambda r: r.occasion)))
        last = {one.turn: one for one in found}
        return tuple(one for one in found if one.turn is None or one is last[one.turn])

    def searched(self, round_: int) -> Mapping[str, Assignment]:
        """Spec id → assignment of every setting with a search record of this round, in the order first measured."""
        first: dict[str, str] = {}
        for record in self.records:
            if record.phase == "search" and record.round == round_:
                spec_id = record.trial.runtime.id
                started = record.started_at.isoformat()
                first[spec_id] = min(started, first.get(spec_id, started))
        return {spec_id: self._assignments[spec_id] for spec_id in sorted(first, key=lambda key: first[key])}

    def of_setting(self, spec: RuntimeSpec, phase: Phase, round_: int) -> dict[str, tuple[Record, ...]]:
        """Workload name → records that count."""
        return {
            workload.name: self.settled(Trial(runtime=spec, workload=workload), phase, round_)
            for workload in self.config.workloads_of(phase)
        }

    def missing(self, spec: RuntimeSpec, phase: Phase, round_: int, boots: int = 1) -> list[Workload]:
        """The workloads that lack the setting's `boots`-th record."""
        settled = self.of_setting(spec, phase, round_)
        return [workload for workload in self.config.workloads_of(phase) if len(settled[workload.name]) < boots]

    def left(
        self,
        spec: RuntimeSpec,
        phase: Phase,
        round_: int,
        boots: int = 1,
        turns: range | None = None,
        *,
        again: Container[int | None] = (),
    ) -> list[Workload]:
        """The missing workloads that no other process has reserved; of a confirmation, among the boots of these turns, without those
        that begin `again`.
        """
        under_way = [
            one for one in self.under_way(phase, round_) if turns is None or one.turn is None or one.turn in turns
        ]
        settled = self.of_setting(spec, phase, round_)

        def had(workload: Workload) -> int:
            trial, found = Trial(runtime=spec, workload=workload).id, settled[workload.name]
            if turns is not None:  # old records have no turn; theirs is their place
                found = tuple(r for place, r in enumerate(found) if (place if r.turn is None else r.turn) in turns)
            found = tuple(record for record in found if record.turn not in again)
            return len(found) + sum(one.trial == trial for one in under_way)

        return [workload for workload in self.config.workloads_of(phase) if had(workload) < boots]

    def under_way(self, phase: Phase, round_: int) -> list[ReservedTrial]:
        """Reserved trials without a record."""
        held = [one for one in self.reservations if one.phase == phase and one.round == round_]
        return [one for reservation in held for one in reservation.trials if self._record_of(one) is None]

    def _record_of(self, reserved: ReservedTrial) -> Record | None:
        return next((one for one in self._all.get(reserved.trial, ()) if one.occasion == reserved.occasion), None)

    def boots(self, round_: int, phase: Phase | None = None) -> int:
        """Boots used by this round: finished, failed and under way. An interrupted boot or a refused setting used
        none.
        """
        asked = [record for record in self.records if record.round == round_ and phase in (None, record.phase)]
        used = finished_boots(self.config, [record for record in asked if not record.is_refusal])
        held = [
            one for one in self.reservations if one.round == round_ and phase in (None, one.phase) and not one.goes_on
        ]
        return len(used) + sum(not self._is_over(one, used) for one in held)

    def _is_over(self, reservation: BootReservation, used: Container[str]) -> bool:
        """Whether the boot already counts by its records; its process still stops the server."""
        records = (self._record_of(one) for one in reservation.trials)
        return any(record is not None and (record.is_refusal or record.boot in used) for record in records)


class Spent(NamedTuple):
    """What some records took, in seconds."""

    boots: list[tuple[Record, float]]
    """Per boot a record of it."""
    trials: list[tuple[Record, float]]


def spent(records: Iterable[Record]) -> Spent:
    """All boots, trials and evals, failed ones too."""
    ran = [record for record in records if not record.is_refusal]
    ready = {record.boot: record for record in ran if record.boot_s is not None}
    # A boot that failed is recorded once for each of its trials.
    failed = {record.boot: record for record in ran if record.boot not in ready}
    boots = [(record, record.boot_s or 0.0) for record in ready.values()]
    boots += [(record, record.duration_s) for record in failed.values()]
    return Spent(boots, [(record, record.duration_s) for record in ran if record.boot in ready])


def gpu_seconds(records: Iterable[Record], gpus: Callable[[RuntimeSpec], int]) -> float:
    """Seconds of all boots, trials and evals, failed ones too, each times the GPUs of its setting."""
    boots, trials = spent(records)
    return math.fsum(gpus(record.trial.runtime) * seconds for record, seconds in (*boots, *trials))


def environments(config: StudyConfig, records: Iterable[Record]) -> list[Environment]:
    """The environments in which the study was measured; the one of the last record comes last."""
    found: dict[str, Environment] = {}
    workloads = config.recorded_workloads
    for record in records:
        if record.trial.workload in workloads and assignment_of(config, record.trial.runtime) is not None:
            found.pop(record.environment.fingerprint, None)
            found[record.environment.fingerprint] = record.environment
    return list(found.values())


def assignment_of(config: StudyConfig, spec: RuntimeSpec) -> Assignment | None:
    """The axis values that make this spec; None if it does not belong to the config."""
    base = config.default.knobs
    axes = {axis.name: axis.values for axis in config.space.axes}
    chosen = {name: value for name, value in spec.knobs.items() if name in axes}
    if config.spec(chosen) != spec:
        return None
    if all(value in axes[name] or value == base.get(name) for name, value in chosen.items()):
        return chosen
    return None


class ReservedTrial(Value):
    """One trial of a boot under way, and the occasion of its future record."""

    trial: str
    occasion: int
    turn: int | None = None


class BootReservation(Value):
    """A boot under way."""

    spec: RuntimeSpec
    phase: Phase
    round: int
    trials: tuple[ReservedTrial, ...]
    goes_on: bool = False
    """Whether the boot was counted before: its server goes on to another setting."""


def describe(records: StudyRecords, spec: RuntimeSpec) -> str:
    """What differs from the default, as `knob=value knob=value`; `default` if nothing does.

    An axis with a single value is left out if its condition already implies it.
    """
    space = records.config.space
    implied = {axis.name for axis in space.axes if len(axis.values) == 1 and axis.name in space.when}
    return spec.changes(records.config.default, left_out=implied)
