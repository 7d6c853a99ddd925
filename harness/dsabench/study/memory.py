"""What is known before a study: winners of earlier ones come first, their failures not at all, and `gp` expects the rest.

Where nothing was served yet, times of kernels let something expect.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice, zip_longest
from pathlib import Path
from statistics import median
from typing import Literal

from dsabench.config.specs import StudyConfig
from dsabench.errors import InputError
from dsabench.kernelbench.table import read_points
from dsabench.model.environment import Environment, Hardware
from dsabench.model.hardware import accelerator
from dsabench.model.record import SERVER_LOST, Failed, Measured, Record
from dsabench.model.runtime import Refuse, RuleViolation, RuntimeSpec, refuse_nothing
from dsabench.model.space import AssignmentKey, canonical, is_legal, key_of
from dsabench.model.study import Assignment, EarlierValue, SearchSpace
from dsabench.model.study_result import ObjectiveScore, ScoredSetting
from dsabench.reporting.numbers import show_count
from dsabench.results.journal import FILE_NAME, read_journal
from dsabench.results.scores import rank_key, score_setting
from dsabench.study.proposers import task_of
from dsabench.study.proposers.proposer import ENOUGH_EARLIER
from dsabench.study.proposers.random import draw_some, generator
from dsabench.tuners.attention_times import ExpectedSpeed

REMEMBERED = "memory"
"""In place of a rule's id: a record refuses the setting."""
_LASTING = SERVER_LOST - {"killed", "unreachable", "nccl_timeout", "watchdog"} | {"bad_arguments"}
"""Faults of a boot that come again. Others are the machine's, not the setting's."""
_GUESSED, _TOLD = 2_000, 200
"""Settings whose speed is expected from kernel times, and as many of them as a process is fitted to."""
_COMMON = 3
"""Settings in common from which earlier values can be judged."""


@dataclass(frozen=True, slots=True)
class Memory:
    """What a study takes from earlier ones, and from kernel times."""

    winners: tuple[Assignment, ...] = ()
    """Settings of the space that were the best, or are expected to be, in the order in which they are measured."""
    earlier: tuple[EarlierValue, ...] = ()
    """Settings of the space that were measured, or those that are expected from kernel times."""
    failed: Mapping[str, str] = field(default_factory=dict)
    """Id of a spec without its version → where and how it failed."""
    lines: tuple[str, ...] = ()
    """What to say of each journal, and of the kernel times."""

    def into(self, space: SearchSpace) -> SearchSpace:
        """The space with what is known of it."""
        enqueued = (*space.enqueued, *self.winners)
        return space.model_copy(update={"enqueued": enqueued, "earlier": self.earlier})

    def refuse(self, refuse: Refuse, default: RuntimeSpec) -> Refuse:
        """Refuse known failures too, but never the default."""
        if not self.failed:
            return refuse

        def refuse_known(spec: RuntimeSpec) -> RuleViolation | None:
            known = None if spec == default else self.failed.get(_id_of(spec))
            return refuse(spec) if known is None else RuleViolation(REMEMBERED, f"{REMEMBERED}: {known}")

        return refuse_known


def remember(config: StudyConfig, environment: Environment, refuse: Refuse = refuse_nothing) -> Memory:
    """Read the journals that `first.from` names, and the kernel times of `first.kernels`.

    Raises:
        InputError: there is no such journal or table, or it cannot be read.

    """
    wanted = config.memory
    if wanted is None:
        return Memory()
    best: list[list[Assignment]] = []
    earlier: list[EarlierValue] = []
    failed: dict[str, str] = {}
    lines: list[str] = []
    for folder in map(Path, wanted.journals):
        path = folder if folder.is_file() else folder / FILE_NAME
        if not path.is_file():
            raise InputError(f"first.from: {folder}: no journal there")
        records = [one for one in read_journal(path).records if _is_alike(one, config, environment)]
        scored = _scored(config, records)
        earlier += relative([(setting, score.value) for setting, score in scored if score.value is not None])
        best.append([setting for setting, score in scored if score.is_feasible])
        known = dict(_failures(path, records))
        failed |= known
        lines.append(_said(folder, records, min(len(best[-1]), wanted.winners), len(known)))
    if wanted.kernels is not None:
        guessed = _expected(config, Path(wanted.kernels), environment)
        best.append(list(islice((one for one, _ in guessed if refuse(config.spec(one)) is None), wanted.winners)))
        lines.append(_said_of_kernels(Path(wanted.kernels), len(guessed), len(best[-1])))
        if len(earlier) < ENOUGH_EARLIER:  # else what was served tells more
            earlier = relative(generator(0).sample(guessed, min(len(guessed), _TOLD)), "kernels")
    # The best of each journal, then the second of each.
    in_turns = (one for one in chain.from_iterable(zip_longest(*best)) if one is not None)
    winners = list({key_of(one): one for one in in_turns}.values())[: wanted.winners]
    return Memory(tuple(winners), tuple(earlier), failed, tuple(lines))


def _said(folder: Path, records: Sequence[Record], winners: int, failures: int) -> str:
    if not records:
        return f"{folder}: no records of this model, hardware and version"
    first = f"{show_count(winners, 'winner')} first"
    return f"{folder}: {first}, {show_count(failures, 'known failure')} skipped"


def _said_of_kernels(folder: Path, expected: int, first: int) -> str:
    if not expected:
        return f"{folder}: no kernel times of this hardware for a setting of this study"
    return f"{folder}: kernel times tell the expected speed of {show_count(expected, 'setting')}; {show_count(first, 'setting')} first"


def _expected(config: StudyConfig, folder: Path, environment: Environment) -> list[tuple[Assignment, float]]:
    """Legal settings, the best first, with the objective that kernel times let expect, in a unit of its own.

    Raises:
        InputError: there are no kernel times, or they cannot be read.

    """
    measured = read_points(folder)
    if not measured:
        raise InputError(f"first.kernels: {folder}: no kernel times there; `dsabench kernels bench` writes them")
    named = None if config.runtime.hardware is None else accelerator(config.runtime.hardware).device_name
    alike = [one for one in measured if _is_hardware(one.environment.hardware, named, environment.hardware)]
    speed = ExpectedSpeed(config, alike)
    sign = 1.0 if config.objective.direction == "maximize" else -1.0
    told = ((one, speed.of(config.spec(one))) for one in _some_of(config))
    found = [(one, value**sign) for one, value in told if value is not None]
    return sorted(found, key=lambda one: sign * one[1], reverse=True)


def _some_of(config: StudyConfig) -> Sequence[Assignment]:
    """Legal settings, all of them where they are few."""
    legal, rng = task_of(config).legal, generator(0)
    if legal.listed is not None:
        return rng.sample(legal.listed, min(len(legal.listed), _GUESSED))
    return draw_some(legal, _GUESSED, rng)


def _id_of(spec: RuntimeSpec) -> str:
    return spec.model_copy(update={"version": None}).id


def _is_alike(record: Record, config: StudyConfig, environment: Environment) -> bool:
    """Whether a record is of the same model, hardware class and version. Its GPUs may be others of the kind."""
    spec, wanted = record.trial.runtime, config.default
    same = (spec.kind, spec.model, spec.hardware, record.environment.runtime.version)
    if same != (wanted.kind, wanted.model, wanted.hardware, environment.runtime.version):
        return False
    return wanted.hardware is not None or _class_of(record.environment.hardware) == _class_of(environment.hardware)


def _is_hardware(measured: Hardware, device: str | None, here: Hardware) -> bool:
    if device is None:
        return _class_of(measured) == _class_of(here)
    return any(gpu.name == device for gpu in measured.gpus)


def _class_of(hardware: Hardware) -> tuple[object, ...]:
    return hardware.cpu, hardware.cpu_cores, tuple(gpu.name for gpu in hardware.gpus)


def _scored(config: StudyConfig, records: Iterable[Record]) -> list[tuple[Assignment, ObjectiveScore]]:
    """The settings of the space with their scores by all workloads of their journal, the best first."""
    space, base = config.space, config.default.knobs
    measured: dict[AssignmentKey, dict[str, list[Record]]] = defaultdict(lambda: defaultdict(list))
    settings: dict[AssignmentKey, Assignment] = {}
    for record in records:
        setting = canonical(space, base, record.trial.runtime.knobs)
        if isinstance(record.outcome, Measured) and config.spec(setting).knobs == record.trial.runtime.knobs:
            measured[key_of(setting)][record.trial.workload.name].append(record)
            settings[key_of(setting)] = setting
    loads = {name for of_setting in measured.values() for name in of_setting}
    scored = [
        (settings[key], score_setting(config.objective, of_setting))
        for key, of_setting in measured.items()
        if of_setting.keys() == loads and is_legal(space, base, settings[key])
    ]
    return sorted(scored, key=lambda one: rank_key(config.objective, one[1]), reverse=True)


def relative(
    values: Sequence[tuple[Assignment, float]], told_by: Literal["study", "kernels"] = "study"
) -> list[EarlierValue]:
    """Values as multiples of their geometric mean: studies with other loads differ in level, less in what is better."""
    if not values:
        return []
    middle = math.exp(math.fsum(math.log(value) for _, value in values) / len(values))
    return [EarlierValue(setting=setting, value=value / middle, told_by=told_by) for setting, value in values]


def error_of(config: StudyConfig, measured: Iterable[ScoredSetting]) -> str | None:
    """How far what was measured is from what was known of the same settings; None for fewer than `_COMMON`."""
    earlier = {key_of(one.setting): one.value for one in config.space.earlier}
    known = (
        (key_of(canonical(config.space, config.default.knobs, one.spec.knobs)), one.score.value) for one in measured
    )
    logs = [math.log(value / earlier[key]) for key, value in known if key in earlier and value is not None]
    if len(logs) < _COMMON:
        return None
    middle = median(logs)  # their level may differ
    off = math.expm1(median(abs(one - middle) for one in logs))
    if any(one.told_by == "kernels" for one in config.space.earlier):
        return (
            f"first: kernel times told the ratios of {len(logs)} of these settings; they differ by {off:.1%} (median)"
        )
    return f"first: {len(logs)} of these settings were measured before; their ratios differ by {off:.1%} (median)"


def _failures(path: Path, records: Iterable[Record]) -> Iterator[tuple[str, str]]:
    """Specs whose every boot failed, in a way that comes again."""
    of_spec: dict[str, list[Record]] = defaultdict(list)
    for record in records:
        if not record.is_refusal:
            of_spec[_id_of(record.trial.runtime)].append(record)
    for spec, known in of_spec.items():
        outcomes = [one.outcome for one in known]
        failed = [one for one in outcomes if isinstance(one, Failed) and one.stage == "boot" and not one.transient]
        if len(failed) == len(outcomes) and all(one.fault in _LASTING for one in failed):
            when = known[-1].started_at.date().isoformat()
            message = failed[-1].message.partition("\n")[0][:160]
            yield spec, f"it failed on {when} ({path}): {failed[-1].fault}: {message}"
