"""The records of one study in one environment: what is done, what is under way, and which boots count."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Container, Hashable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple, TypeVar

from dsabench.config.specs import StudyConfig
from dsabench.model.environment import Environment
from dsabench.model.record import AnyTrial, Failed, Phase, Record, Scored, Trial
from dsabench.model.runtime import RuntimeSpec
from dsabench.model.study import Assignment
from dsabench.model.study_result import AccuracyRefusal
from dsabench.model.value import Value
from dsabench.model.workload import Workload
from dsabench.results.machines import machine_name

T = TypeVar("T")


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


class _Boot(NamedTuple):
    """The records of one setting in one boot."""

    started_at: datetime
    boot: str
    phase: Phase
    lacked: list[str]
    """Workloads that it was for: those with the fewest records before."""
    recorded: frozenset[str]
    gained: int
    """Workloads that have their first record that counts by it."""
    failed: bool


def _boots_of(config: StudyConfig, records: Iterable[Record]) -> list[_Boot]:
    """The boots of one setting, in order."""
    boots: dict[str, list[Record]] = defaultdict(list)
    for record in sorted(records, key=lambda record: record.started_at):
        boots[record.boot].append(record)
    found, earlier = [], defaultdict[Phase, list[Record]](list)
    for boot, of_boot in boots.items():
        phase = of_boot[0].phase
        before = _settled(config, earlier[phase], phase)
        earlier[phase] += of_boot
        after = _settled(config, earlier[phase], phase)
        gained = sum(count > 0 and not before[name] for name, count in after.items())
        names = frozenset(record.trial.workload.name for record in of_boot)
        failed = any(isinstance(record.outcome, Failed) for record in of_boot)
        found.append(_Boot(of_boot[0].started_at, boot, phase, _lacking(before), names, gained, failed))
    return found


def finished_boots(config: StudyConfig, boots: Iterable[_Boot]) -> set[str]:
    """The complete boots of one round: those that failed, or that recorded every trial which their first setting lacked.

    Others were interrupted or lost records, so another boot repeats them. The journal does not store the plan of a
    boot; it follows from the records that existed before.
    """
    finished: set[str] = set()
    searched = 0
    for one in sorted(boots, key=lambda one: one.started_at):
        lacking = one.lacked
        if one.phase == "search" and config.budget.max_trials is not None:
            lacking = lacking[: max(0, config.budget.max_trials - searched)]
        if one.phase == "search":
            searched += one.gained
        if one.failed or one.recorded.issuperset(lacking):
            finished.add(one.boot)
    return finished


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
        self._specs: dict[str, RuntimeSpec] = {}
        self._of_spec: dict[str, list[Record]] = defaultdict(list)
        self._first: dict[int, dict[str, str]] = defaultdict(dict)
        """Round → id of a searched setting → when its first trial started."""
        self._known: dict[str | None, dict[Hashable, Any]] = defaultdict(dict)
        for record in records:
            self.add(record)

    def beside(self, reservations: Sequence[BootReservation], running: RuntimeSpec | None = None) -> StudyRecords:
        """The same records, and those that are added to them later, with other boots under way."""
        seen = copy(self)
        seen.reservations, seen.running = tuple(reservations), running
        return seen

    def of(self, spec_id: str | None, what: Hashable, find: Callable[[], T]) -> T:
        """What follows from the records of a setting (None: of all of them), found once until there is another one."""
        known = self._known[spec_id]
        if what not in known:
            known[what] = find()
        return known[what]  # type: ignore[no-any-return]

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
        spec_id = record.trial.runtime.id
        if spec_id not in self._specs:
            self._specs[spec_id] = self.config.spec(assignment)
        self._all.setdefault(record.id, []).append(record)
        self._of_spec[spec_id].append(record)
        for changed in (spec_id, None):
            self._known.pop(changed, None)
        if record.phase == "search":
            started, first = record.started_at.isoformat(), self._first[record.round]
            first[spec_id] = min(started, first.get(spec_id, started))

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

    def searched(self, round_: int) -> list[RuntimeSpec]:
        """Every setting with a search record of this round, in the order first measured."""
        first = self._first.get(round_, {})
        return self.of(
            None, ("searched", round_), lambda: [self._specs[one] for one in sorted(first, key=first.__getitem__)]
        )

    def of_setting(self, spec: RuntimeSpec, phase: Phase, round_: int) -> dict[str, tuple[Record, ...]]:
        """Workload name → records that count."""
        return self.of(
            spec.id,
            (phase, round_),
            lambda: {
                workload.name: self.settled(Trial(runtime=spec, workload=workload), phase, round_)
                for workload in self.config.workloads_of(phase)
            },
        )

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
        """The missing workloads that no other process has reserved; of a confirmation, among the boots of these turns, those that begin
        `again` only with what was measured here.
        """
        under_way = [
            one for one in self.under_way(phase, round_) if turns is None or one.turn is None or one.turn in turns
        ]
        settled = self.of_setting(spec, phase, round_)

        def had(workload: Workload) -> int:
            found = settled[workload.name]
            if turns is not None:  # old records have no turn; theirs is their place
                found = tuple(r for place, r in enumerate(found) if (place if r.turn is None else r.turn) in turns)
            found = tuple(record for record in found if self.counts(record, again))
            if not under_way:
                return len(found)
            trial = Trial(runtime=spec, workload=workload).id
            return len(found) + sum(one.trial == trial for one in under_way)

        return [workload for workload in self.config.workloads_of(phase) if had(workload) < boots]

    def counts(self, record: Record, again: Container[int | None]) -> bool:
        """Whether it need not be measured again: its turn does not begin `again`, or it is of this machine."""
        return record.turn not in again or machine_name(record.environment) == self.machine

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
        used = self.of(
            None, ("finished", round_, phase), lambda: finished_boots(self.config, self._boots(round_, phase))
        )
        held = [
            one for one in self.reservations if one.round == round_ and phase in (None, one.phase) and not one.goes_on
        ]
        return len(used) + sum(not self._is_over(one, used) for one in held)

    def _boots(self, round_: int, phase: Phase | None) -> Iterator[_Boot]:
        """The boots of a round, setting by setting."""

        def of_setting(records: Sequence[Record]) -> list[_Boot]:
            asked = (one for one in records if one.round == round_ and phase in (None, one.phase))
            return _boots_of(self.config, [one for one in asked if not one.is_refusal])

        for spec_id, records in self._of_spec.items():
            yield from self.of(spec_id, ("boots", round_, phase), partial(of_setting, records))

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
    machine: str
    """Name of the one where it is."""


def describe(records: StudyRecords, spec: RuntimeSpec) -> str:
    """What differs from the default, as `knob=value knob=value`; `default` if nothing does.

    An axis with a single value is left out if its condition already implies it.
    """
    space = records.config.space
    implied = {axis.name for axis in space.axes if len(axis.values) == 1 and axis.name in space.when}
    return spec.changes(records.config.default, left_out=implied)
