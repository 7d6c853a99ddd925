"""The records of one study in one environment: what is done, what is under way, and which boots count."""

from __future__ import annotations

import math
import statistics
from bisect import bisect_right, insort
from collections import defaultdict
from collections.abc import Callable, Container, Hashable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from datetime import datetime
from itertools import chain
from typing import Any, Generic, NamedTuple, TypeVar, cast

from dsabench.config.specs import StudyConfig
from dsabench.model.environment import Environment
from dsabench.model.record import Failed, Phase, Record, Scored, Trial
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


class _BootsOfSetting(NamedTuple):
    """Those of one setting in a round."""

    boots: list[_Boot]
    finished: set[str]
    """Those that are, without a limit of trials."""
    gained: int
    """Trials of the search that they have measured."""


def finished_boots(boots: Iterable[_Boot], max_trials: int | None) -> set[str]:
    """The complete boots of one round: those that failed, or that recorded every trial which their first setting lacked, as far as
    `max_trials` left room for them.

    Others were interrupted or lost records, so another boot repeats them. The journal does not store the plan of a
    boot; it follows from the records that existed before.
    """
    finished: set[str] = set()
    searched = 0
    for one in sorted(boots, key=lambda one: one.started_at):
        lacking = one.lacked
        if one.phase == "search" and max_trials is not None:
            lacking = lacking[: max(0, max_trials - searched)]
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


class _Order:
    """The searched settings of a round (ids), in the order first measured."""

    def __init__(self) -> None:
        self.ids: list[str] = []
        self.places: dict[str, int] = {}
        self.inserted: list[int] = []
        """Place of each when it was inserted."""
        self.sorted_anew = 0
        """How often an order that was known had to change."""
        self._started: dict[str, str] = {}

    def add(self, spec_id: str, started: str) -> None:
        """A trial of a setting, which started then."""
        known = self._started.get(spec_id)
        if known is not None and known <= started:
            return
        self._started[spec_id] = started
        if known is None:
            place = bisect_right(self.ids, started, key=lambda spec_id: self._started[spec_id])
            self.ids.insert(place, spec_id)
            self.inserted.append(place)
        else:
            place = 0
            self.ids.sort(key=self._started.__getitem__)
            self.sorted_anew += 1
        for moved in range(place, len(self.ids)):
            self.places[self.ids[moved]] = moved


class _Kept(Generic[T]):
    """What follows from the records of each setting, as far as it was found."""

    def __init__(self) -> None:
        self.found: dict[str, T] = {}
        self.seen = 0
        """Changes that were looked at."""
        self._listed: list[T | None] = []
        self._followed = self._inserted = self._sorted_anew = 0
        """How far the list follows the changes and an order."""

    def put(self, spec_id: str, value: T) -> None:
        """Found anew."""
        self.found[spec_id] = value

    def listed(self, order: _Order, changed: Sequence[str]) -> list[T | None]:
        """In that order, always the same one, once all that `changed` was found. Not to be changed."""
        if self._sorted_anew != order.sorted_anew:
            self._listed = [self.found[spec_id] for spec_id in order.ids]
        else:
            for inserted in order.inserted[self._inserted :]:
                self._listed.insert(inserted, None)
            for spec_id in changed[self._followed :]:
                if (place := order.places.get(spec_id)) is not None:
                    self._listed[place] = self.found[spec_id]
        self._followed, self._inserted, self._sorted_anew = len(changed), len(order.inserted), order.sorted_anew
        return self._listed


class _Counts(_Kept[int]):
    """A count of each setting, their sum, and those that are not 0."""

    def __init__(self) -> None:
        super().__init__()
        self.sum = 0
        self.some: set[str] = set()

    def put(self, spec_id: str, value: int) -> None:
        """Counted anew."""
        self.sum += value - self.found.get(spec_id, 0)
        (self.some.add if value else self.some.discard)(spec_id)
        super().put(spec_id, value)


class Pace:
    """How long boots and trials took, in seconds."""

    def __init__(self) -> None:
        self._boots: set[str] = set()
        self._boots_s: list[float] = []
        self._trials_s = 0.0
        self._trials = 0

    def add(self, record: Record) -> None:
        """A record more."""
        if record.boot_s is not None and record.boot not in self._boots:
            self._boots.add(record.boot)
            insort(self._boots_s, record.boot_s)
        if not isinstance(record.outcome, Failed):
            self._trials_s += record.duration_s
            self._trials += 1

    @property
    def boot_s(self) -> float | None:
        """Median of the boots, since the first one on a machine may compile kernels for minutes; None without one."""
        return statistics.median(self._boots_s) if self._boots_s else None

    @property
    def trial_s(self) -> float | None:
        """Mean of the trials that did not fail; None without one."""
        return self._trials_s / self._trials if self._trials else None


K = TypeVar("K", bound=_Kept[Any])
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
        self._order: dict[int, _Order] = defaultdict(_Order)
        """Of each round."""
        self._trials: dict[tuple[str, Phase], dict[str, str]] = {}
        self._known: dict[str | None, dict[Hashable, Any]] = defaultdict(dict)
        self.pace = Pace()
        self._changed: list[str] = []
        """Id of the setting of each record, as they were added, and of each refusal."""
        self._kept: dict[Hashable, _Kept[Any]] = {}
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

    def of_each(self, what: Hashable, find: Callable[[RuntimeSpec], T]) -> Mapping[str, T]:
        """Id of a setting → what follows from its records, of all that have one. Found again only for those that have got another one:
        a long study asks before every boot.
        """
        return self._keep(what, find, _Kept).found

    def of_each_searched(self, what: Hashable, find: Callable[[RuntimeSpec], T], round_: int) -> Sequence[T | None]:
        """The same of the searched settings of a round, in the order first measured. `what` must name the round."""
        return self._keep(what, find, _Kept).listed(self._order[round_], self._changed)

    def total(self, what: Hashable, count: Callable[[RuntimeSpec], int]) -> int:
        """Sum of a count over the settings that have a record."""
        return self._keep(what, count, _Counts).sum

    def _keep(self, what: Hashable, find: Callable[[RuntimeSpec], Any], make: type[K]) -> K:
        kept = cast("K", self._kept.setdefault(what, make()))
        for spec_id in dict.fromkeys(self._changed[kept.seen :]):
            kept.put(spec_id, find(self._specs[spec_id]))
        kept.seen = len(self._changed)
        return kept

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
        self._change(spec_id)
        self.pace.add(record)
        if record.phase == "search":
            self._order[record.round].add(spec_id, record.started_at.isoformat())

    def refuse(self, refusals: Mapping[str, AccuracyRefusal]) -> None:
        """Take these in place of the refusals before."""
        before, self.refusals = self.refusals, refusals
        for spec_id in before.keys() | refusals.keys():
            if spec_id in self._specs and before.get(spec_id) != refusals.get(spec_id):
                self._change(spec_id)

    def _change(self, spec_id: str) -> None:
        """What followed of a setting, and of all of them, is to be found again."""
        for changed in (spec_id, None):
            self._known.pop(changed, None)
        self._changed.append(spec_id)

    def __iter__(self) -> Iterator[Record]:
        """Every record of the study, grouped by trial in written order."""
        return chain.from_iterable(self._all.values())

    @property
    def records(self) -> tuple[Record, ...]:
        """All of them."""
        return tuple(self)

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

    def settled(self, trial: str, phase: Phase, round_: int) -> tuple[Record, ...]:
        """The records of a trial (id) that count, one per boot. After a transient fault only its single retry counts; of a turn that began again on
        another machine, only its last boot.
        """
        of_phase = [r for r in self._all.get(trial, ()) if r.phase == phase and r.round == round_]
        found = list(settle(sorted(of_phase, key=lambda r: r.occasion)))
        last = {one.turn: one for one in found}
        return tuple(one for one in found if one.turn is None or one is last[one.turn])

    def searched(self, round_: int) -> list[RuntimeSpec]:
        """Every setting with a search record of this round, in the order first measured."""
        return [self._specs[spec_id] for spec_id in self._order[round_].ids]

    def lacking(self, round_: int) -> list[RuntimeSpec]:
        """Those of them that lack a workload."""
        lacks = self._keep(("lacks", round_), lambda spec: len(self.missing(spec, "search", round_)), _Counts)
        places = self._order[round_].places
        return [
            self._specs[one] for one in sorted((one for one in lacks.some if one in places), key=places.__getitem__)
        ]

    def of_setting(self, spec: RuntimeSpec, phase: Phase, round_: int) -> dict[str, tuple[Record, ...]]:
        """Workload name → records that count."""
        return self.of(
            spec.id,
            (phase, round_),
            lambda: {name: self.settled(trial, phase, round_) for name, trial in self._trials_of(spec, phase).items()},
        )

    def _trials_of(self, spec: RuntimeSpec, phase: Phase) -> Mapping[str, str]:
        """Workload name → id of its trial."""
        if (known := self._trials.get((spec.id, phase))) is None:
            loads = self.config.workloads_of(phase)
            known = {load.name: Trial(runtime=spec, workload=load).id for load in loads}
            self._trials[spec.id, phase] = known
        return known

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
            trial = self._trials_of(spec, phase)[workload.name]
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
        of_settings = self.of_each(("boots", round_, phase), lambda spec: self._boots_of(spec, round_, phase))
        gained = self.total(("gained", round_, phase), lambda spec: of_settings[spec.id].gained)
        held = [
            one for one in self.reservations if one.round == round_ and phase in (None, one.phase) and not one.goes_on
        ]
        most = self.config.budget.max_trials
        # The last boots of a search are for fewer workloads, by what all before them have measured.
        nears_limit = most is not None and gained + len(self.config.search_workloads) > most
        if nears_limit or self.config.reload_free:  # one boot may be of several settings
            all_of_them = chain.from_iterable(one.boots for one in of_settings.values())
            used = self.of(None, ("finished", round_, phase), lambda: finished_boots(all_of_them, most))
            return len(used) + sum(not self._is_over(one, used) for one in held)
        number = self.total(("finished", round_, phase), lambda spec: len(of_settings[spec.id].finished))
        known = ((one, of_settings.get(one.spec.id)) for one in held)
        return number + sum(found is None or not self._is_over(one, found.finished) for one, found in known)

    def _boots_of(self, spec: RuntimeSpec, round_: int, phase: Phase | None) -> _BootsOfSetting:
        asked = (one for one in self._of_spec[spec.id] if one.round == round_ and phase in (None, one.phase))
        boots = _boots_of(self.config, [one for one in asked if not one.is_refusal])
        gained = sum(one.gained for one in boots if one.phase == "search")
        return _BootsOfSetting(boots, finished_boots(boots, None), gained)

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
