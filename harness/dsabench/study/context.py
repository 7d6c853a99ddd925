"""What a study is measured with: runtime, machine, rules of the runtime, and limits of this run."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path

from dsabench.config.specs import StudyConfig
from dsabench.errors import InputError
from dsabench.machine.cpu_use import CpuSnapshot
from dsabench.machine.environment import collect_environment, visible_gpus
from dsabench.model.environment import Environment, RuntimeIdentity
from dsabench.model.record import Record
from dsabench.model.runtime import (
    LANES,
    Annotate,
    ForecastMemory,
    Refuse,
    RuntimeSpec,
    SettingCheck,
    annotate_nothing,
    no_forecast,
    refuse_nothing,
)
from dsabench.model.space import legal
from dsabench.model.topology import SINGLE
from dsabench.reporting.comparison import differences_in_words
from dsabench.results.journal import Journal
from dsabench.results.machines import machine_name
from dsabench.results.study_records import BootReservation, StudyRecords, environments
from dsabench.runtimes.kinds import make_runtime
from dsabench.runtimes.plan import machines_of
from dsabench.runtimes.protocol import Runtime
from dsabench.runtimes.shares import Share, split_machine
from dsabench.study.budget import RunLimits, no_gpus
from dsabench.study.machines import Needs
from dsabench.study.memory import remember
from dsabench.study.next_boot import listed
from dsabench.study.session import SILENT, StudyObserver, TrialSession
from dsabench.study.space_check import SpaceCheck, check_space, require_legal_default, sample

_ASKED_FOR_GPUS = 10_000
"""Number of settings that are checked for their GPU count; a large space is not enumerated completely."""
_ASKED_AT_ONCE = 100
_SILENT_S = 3.0
"""From when on the check of a large space says how far it is."""
_RECORDS_ALONE = "only existing records are used (--conclude)"


@dataclass(frozen=True, slots=True)
class SettingRules:
    """What the runtime's rules say about a setting before it boots.

    A runtime without rules refuses nothing and reports 0 GPUs.
    """

    refuse: Refuse = refuse_nothing
    gpus: Callable[[RuntimeSpec], int] = no_gpus
    annotate: Annotate = annotate_nothing
    memory: ForecastMemory = no_forecast

    def largest(self, specs: Iterable[RuntimeSpec]) -> int:
        """Number of GPUs of the largest setting that is not refused; 0 if the runtime reports no GPU."""
        by_size = sorted(specs, key=self.gpus, reverse=True)
        return next((self.gpus(spec) for spec in by_size if self.refuse(spec) is None), 0)


@dataclass(frozen=True, slots=True)
class StudyContext:
    """Everything that is fixed for one run of a study."""

    config: StudyConfig
    journal: Journal
    runtime: Runtime
    environment: Environment
    rules: SettingRules
    limits: RunLimits
    space: SpaceCheck
    measured_before: int = 0
    """Number of records of the study in the journal when the run started."""
    shares: tuple[Share, ...] = ()
    """The share of the machine for each lane. This process uses the first one. Empty with one lane."""
    labels: tuple[str, ...] = ()
    cpu_before: CpuSnapshot | None = None
    """CPU use of all cores of this process when the run started. It shows what other processes use before the first
    boot.
    """
    known: KnownRecords = field(default_factory=lambda: KnownRecords())  # noqa: PLW0108 (it is defined below)

    @property
    def folder(self) -> Path:
        """Folder of the journal."""
        return self.journal.path.parent

    def records(self, reservations: Sequence[BootReservation] = (), running: RuntimeSpec | None = None) -> StudyRecords:
        """Read the records of the study from the journal, and what the gate says of settings that answered in the search.

        Raises:
            InputError: the answers behind a score are gone.

        """
        known = self.known.read(self)
        add_refusals(known, self.folder, self.limits.round)
        records = known.beside(reservations, running)
        records.machine = machine_name(self.environment)
        return records

    def session(self, observer: StudyObserver) -> TrialSession:
        """Make the session for the trials of this process."""
        return TrialSession(
            study=self.config.name,
            runtime=self.runtime,
            environment=self.environment,
            journal=self.journal,
            folder=self.folder,
            ready_timeout_s=self.config.runtime.ready_timeout_s,
            price_per_gpu_hour=self.config.price_per_gpu_hour,
            observer=observer,
            labels=self.labels,
            cpu_before=self.cpu_before,
        )


class KnownRecords:
    """What was read of the journal so far: of a long study only new records are looked at."""

    def __init__(self) -> None:
        self._of: StudyContext | None = None
        self._read: tuple[Record, ...] = ()
        self._records: StudyRecords

    def read(self, context: StudyContext) -> StudyRecords:
        """All records of the study.

        Raises:
            InputError: the journal cannot be read.

        """
        found, last = context.journal.read().records, len(self._read)
        if not self._is_of(context) or found[last - 1 : last] != self._read[-1:]:
            self._records, last = StudyRecords(context.config, context.environment.fingerprint, ()), 0
        for record in found[last:]:
            self._records.add(record)
        self._of, self._read = context, found
        return self._records

    def _is_of(self, context: StudyContext) -> bool:
        before = self._of
        return before is not None and before.config is context.config and before.journal is context.journal


def add_refusals(records: StudyRecords, folder: Path, round_: int) -> None:
    """Add what the gate says of the settings that answered it in the search.

    Raises:
        InputError: the answers behind a score are gone.

    """
    if gates := records.config.gates_of_settings:
        from dsabench.evals.gate import refused_settings  # noqa: PLC0415  (graders, which most studies do without)

        of_round = [record for record in records.scored if record.round == round_]
        records.refuse(refused_settings(gates, folder, of_round, records.config.default))


async def open_context(
    config: StudyConfig,
    folder: Path,
    observer: StudyObserver = SILENT,
    *,
    lanes: int = 1,
    for_plan: bool = False,
    elsewhere: Environment | None = None,
) -> StudyContext:
    """Examine the runtime and the machine. Writes nothing.

    With `for_plan` the runtime need not be installed, and the machine may be another one than the study will use. `elsewhere` is the
    environment of the machines that boot for it, so that nothing is examined here.

    Raises:
        InputError: the runtime is missing, its rules refuse the default, or the machine cannot be split into so many lanes.

    """
    started_s, runtime, cpu_before = time.monotonic(), make_runtime(config.runtime), CpuSnapshot.now(())
    is_here = elsewhere is None
    if elsewhere is not None:
        identity = elsewhere.runtime
    elif for_plan:
        identity, note = await _identity_for_plan(runtime, config)
        if note is not None:
            is_here = False
            observer.note(f"note: {note}")
    else:
        identity = await runtime.identity()
    rules = await _rules_of(runtime, config, None if is_here else identity.version, observer)
    shares = () if elsewhere is not None else await _shares(config, rules, lanes, observer, for_plan=for_plan)
    if shares:
        # Take the share before the environment is collected: its fingerprint must be that of a share, as in every
        # record.
        shares[0].take()
    environment = elsewhere or await collect_environment(identity)
    memory = remember(config, environment, rules.refuse)
    for line in memory.lines:
        observer.note(f"first: {line}")
    rules = replace(rules, refuse=memory.refuse(rules.refuse, config.default))
    config = config.model_copy(update={"space": memory.into(config.space)})
    if is_here and config.runtime.launch.command_prefix:
        observer.note(
            f"note: records name the hardware of this machine ({environment.host}), although command_prefix may start servers elsewhere"
        )
    require_legal_default(config, rules.refuse)
    return StudyContext(
        config,
        Journal(folder),
        runtime,
        environment,
        rules,
        RunLimits(config.budget, 0, started_s, lanes, rules.gpus, _largest(config, rules)),
        check_space(config, rules.refuse),
        shares=shares,
        cpu_before=cpu_before,
    )


def with_journal(context: StudyContext, observer: StudyObserver, *, again: bool = False) -> StudyContext:
    """Add the round of this run and the number of existing records. A run must hold the claim of the folder."""
    found = _read(context.journal, observer)
    records = StudyRecords(context.config, context.environment.fingerprint, found)
    if not records.records and (others := environments(context.config, found)):
        shown = differences_in_words(others[-1], context.environment)
        observer.note(
            f"note: the records of this study are of another environment ({shown}), so everything is measured anew"
        )
    round_ = records.latest_round + (1 if again and records.records else 0)
    return replace(context, limits=replace(context.limits, round=round_), measured_before=len(records.records))


def context_of_records(config: StudyConfig, folder: Path, observer: StudyObserver = SILENT) -> StudyContext:
    """Make the context from the records alone. This machine and its installed runtime are not examined.

    The environment is that of the newest record.

    Raises:
        InputError: there is no record of the study.

    """
    journal = Journal(folder)
    known = environments(config, _read(journal, observer))
    if not known:
        raise InputError(f"{journal.path}: no record of the study {config.name} to conclude from")
    environment = known[-1]
    if others := [one.fingerprint for one in known[:-1]]:
        observer.note(
            f"note: the verdict uses the latest environment, {environment.fingerprint}; the journal also has {', '.join(others)}"
        )
    records = StudyRecords(config, environment.fingerprint, journal.read().records)
    return StudyContext(
        config,
        journal,
        make_runtime(config.runtime),
        environment,
        SettingRules(),
        RunLimits(config.budget, records.latest_round, closed=_RECORDS_ALONE),
        check_space(config, refuse_nothing),
        measured_before=len(records.records),
    )


def _read(journal: Journal, observer: StudyObserver) -> tuple[Record, ...]:
    """Read the records; report each damaged line once."""
    found = journal.read()
    for problem in found.problems:
        observer.note(f"warning: {problem}")
    return found.records


async def lane_of(context: StudyContext) -> StudyContext:
    """Make the context of one lane, in its own process and on its own share.

    Raises:
        InputError: this share has other hardware than the first one.

    """
    environment = await collect_environment(context.environment.runtime)
    if environment.fingerprint != context.environment.fingerprint:
        raise InputError(
            "this lane's share has other hardware than the first one, so their measurements cannot be compared"
        )
    label = f"one of {context.limits.lanes}{LANES}"
    return replace(
        context,
        environment=environment,
        journal=context.journal.reopened(),
        shares=(),
        labels=(label,),
        cpu_before=None,
    )


async def _identity_for_plan(runtime: Runtime, config: StudyConfig) -> tuple[RuntimeIdentity, str | None]:
    """The installed runtime and None; else the version of the config, or the newest known one, and a note about it."""
    try:
        return await runtime.identity(), None
    except InputError as error:
        if not runtime.releases:
            raise
        version = config.runtime.version or runtime.releases[-1]
        identity = await runtime.identity(version)
        return identity, f"planned for {identity.kind} {version}, which is not installed here ({error})"


async def _rules_of(
    runtime: Runtime, config: StudyConfig, version: str | None, observer: StudyObserver
) -> SettingRules:
    """The rules of the runtime for the installed version or a release, asked about the whole space ahead."""
    known: dict[str, SettingCheck] = {}

    def learn(specs: Sequence[RuntimeSpec]) -> None:
        known.update(zip((spec.id for spec in specs), runtime.check(specs, version), strict=True))

    def check(spec: RuntimeSpec) -> SettingCheck:
        if spec.id not in known:
            learn((spec,))
        return known[spec.id]

    if not (await asyncio.to_thread(check, config.default)).basis:
        return SettingRules()
    points, _ = sample(config)
    since = time.monotonic()
    for first in range(0, len(points), _ASKED_AT_ONCE):
        await asyncio.to_thread(learn, [config.spec(point) for point in points[first : first + _ASKED_AT_ONCE]])
        if time.monotonic() - since > _SILENT_S and first + _ASKED_AT_ONCE < len(points):
            observer.note(f"checked {first + _ASKED_AT_ONCE} of {len(points)} settings")
            since = time.monotonic()
    return SettingRules(
        lambda spec: check(spec).refusal,
        runtime.gpus,
        lambda spec: check(spec).notes,
        lambda spec: check(spec).memory,
    )


async def _shares(
    config: StudyConfig, rules: SettingRules, lanes: int, observer: StudyObserver, *, for_plan: bool
) -> tuple[Share, ...]:
    """Split GPUs and cores into equal shares, each large enough for every setting; no shares for a single lane."""
    if lanes == 1:
        return ()
    try:
        return await _split(config, rules, lanes)
    except InputError as error:
        if not for_plan:
            raise
        observer.note(f"note: planned for another machine ({error})")
        return ()


async def _split(config: StudyConfig, rules: SettingRules, lanes: int) -> tuple[Share, ...]:
    launch, variable = config.runtime.launch, "CUDA_VISIBLE_DEVICES"
    if launch.command_prefix or launch.container is not None:
        raise InputError("--lanes: runtime.launch starts servers elsewhere, where dsabench cannot assign GPUs")
    if variable in launch.env or variable in config.runtime.env:
        raise InputError(f"--lanes: the config sets {variable}, but each lane needs its own value")
    gpus = await visible_gpus()
    each = gpus_each(config, rules.gpus) if gpus else 0
    return split_machine(lanes, sorted(os.sched_getaffinity(0)), gpus, each)


def gpus_each(config: StudyConfig, gpus: Callable[[RuntimeSpec], int]) -> int:
    """GPUs of the largest setting that the space may try; 0 where the runtime computes on none."""
    return max(map(gpus, _settings(config)), default=0)


def needs_of(config: StudyConfig, gpus: Callable[[RuntimeSpec], int]) -> Needs:
    """What the largest setting takes, of all machines and of each."""
    of_settings = [machines_of(spec, gpus) for spec in _settings(config)]
    roles = (config.default.topology or SINGLE).roles
    return Needs(
        gpus_each(config, gpus),
        tuple(max(column) for column in zip(*of_settings, strict=True)),
        any(role.nodes > 1 for role in roles),
    )


def machine_of(context: StudyContext, environment: Environment) -> StudyContext:
    """The context of a worker whose boots are on another machine of a cluster."""
    label = f"one of {context.limits.lanes} machines of a cluster"
    labels = (label,) if context.limits.lanes > 1 else ()
    return replace(context, environment=environment, labels=labels, cpu_before=None)


def _largest(config: StudyConfig, rules: SettingRules) -> int:
    """GPUs of the largest setting; 0 where no limit asks for it, since that looks at every setting."""
    return 0 if config.budget.gpu_hours is None else rules.largest(_settings(config))


def _settings(config: StudyConfig) -> Iterable[RuntimeSpec]:
    assignments = islice(legal(config.space, config.default.knobs), _ASKED_FOR_GPUS)
    return (config.default, *listed(config), *map(config.spec, assignments))
