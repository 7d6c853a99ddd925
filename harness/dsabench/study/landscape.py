"""A search space whose settings were all measured: what a search is replayed on."""

from __future__ import annotations

import gzip
import json
import math
import zlib
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from statistics import fmean, geometric_mean, median_low
from typing import Literal, TypeVar

from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt, ValidationError, model_validator

from dsabench.config.mistakes import unknown_word
from dsabench.config.specs import StudyConfig
from dsabench.errors import InputError
from dsabench.model.space import AssignmentKey, base_assignment, boot_key, canonical, is_legal, key_of
from dsabench.model.study import Assignment, Axis, SearchSpace
from dsabench.model.study_result import ScoredSetting
from dsabench.model.value import FrozenMap, KnobValue, Value
from dsabench.results.scores import boot_values, scored_settings
from dsabench.results.study_records import StudyRecords

Line = TypeVar("Line", bound=Value)


class LandscapeSetting(Value):
    """One setting: its result, and what it took. A line of the file."""

    setting: FrozenMap[KnobValue]
    """Axis name → value, of the active axes."""
    value: PositiveFloat | None = None
    """The objective without noise; None if the setting fails."""
    violation: NonNegativeFloat = 0.0
    """Sum of the relative excess over all constraints; above 0 the setting is infeasible."""
    fault: str | None = None
    """Why it has no value, such as `out_of_memory`."""
    boot_s: NonNegativeFloat
    """Seconds of the boot, or until it failed."""
    trials_s: NonNegativeFloat = 0.0
    """Seconds of its trials."""
    n: PositiveInt = 1
    """Measurements that the value is the mean of."""

    @model_validator(mode="after")
    def _one_outcome(self) -> LandscapeSetting:
        if (self.value is None) == (self.fault is None):
            raise ValueError("needs either value or fault")
        return self

    @property
    def seconds(self) -> float:
        """What measuring it takes."""
        return self.boot_s + self.trials_s

    @property
    def is_feasible(self) -> bool:
        """Whether it may win."""
        return self.value is not None and self.violation == 0.0


class LandscapeHeader(Value):
    """The first line of the file: the space, and what all settings share."""

    landscape: Literal[1] = 1
    """Version of the format."""
    name: str
    about: str = ""
    metric: str = "output_throughput_tok_s"
    direction: Literal["maximize", "minimize"] = "maximize"
    noise: NonNegativeFloat = 0.0
    """Standard deviation of the logarithm of a measurement: 0.02 is 2 %."""
    base: FrozenMap[KnobValue] = Field(default_factory=dict)
    """The default, which every search measures first, and values of knobs that are no axes."""
    axes: FrozenMap[tuple[KnobValue, ...]]
    when: FrozenMap[FrozenMap[KnobValue]] = Field(default_factory=dict)
    """Axis name → the values of others under which it is active."""
    forbid: tuple[FrozenMap[KnobValue], ...] = ()
    reload_free: tuple[str, ...] = ()
    """Axes whose values a running server changes: settings that differ in them alone share a boot."""

    @model_validator(mode="after")
    def _has_reload_free(self) -> LandscapeHeader:
        if missing := sorted(set(self.reload_free) - set(self.axes)):
            raise ValueError(f"reload_free: {missing[0]} is no axis")
        return self

    @property
    def sign(self) -> float:
        """1 where larger is better."""
        return 1.0 if self.direction == "maximize" else -1.0

    @cached_property
    def space(self) -> SearchSpace:
        """The space that a proposer searches."""
        axes = tuple(Axis(name=name, values=values) for name, values in self.axes.items())
        return SearchSpace(axes=axes, when=self.when, forbid=self.forbid)


class Landscape(Value):
    """A space and the results of its settings. A legal setting without a result counts as refused: it is never measured and costs nothing."""

    header: LandscapeHeader
    settings: tuple[LandscapeSetting, ...]

    @cached_property
    def by_key(self) -> dict[AssignmentKey, int]:
        """Key of a setting → its place in `settings`."""
        return {key_of(one.setting): place for place, one in enumerate(self.settings)}

    def setting(self, assignment: Assignment) -> LandscapeSetting:
        """The result of a measured setting."""
        return self.settings[self.by_key[key_of(assignment)]]

    @cached_property
    def best(self) -> LandscapeSetting:
        """The best feasible setting."""
        feasible = [one for one in self.settings if one.is_feasible]
        return max(feasible, key=lambda one: self.header.sign * (one.value or 0.0))

    @property
    def seconds(self) -> float:
        """What measuring all settings takes, with a boot used for all settings that can share it."""
        boots: dict[AssignmentKey, float] = {}
        for one in self.settings:
            key = boot_key(one.setting, self.header.reload_free)
            boots[key] = max(one.boot_s, boots.get(key, 0.0))
        return math.fsum((*boots.values(), *(one.trials_s for one in self.settings)))

    def regret(self, setting: LandscapeSetting) -> float:
        """What a setting loses against the best one, as a share of it; without noise."""
        assert setting.value is not None, "only what was measured can be compared"
        assert self.best.value is not None, "the best one is feasible"
        return abs(setting.value / self.best.value - 1.0)


def read_landscape(file: Path) -> Landscape:
    """Read a `.jsonl` or `.jsonl.gz` file.

    Raises:
        InputError: with the line, and what is wrong in it.

    """
    try:
        with gzip.open(file, "rt") if file.suffix == ".gz" else file.open(encoding="utf-8") as text:
            lines = text.read().splitlines()
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise InputError(f"{file}: {getattr(error, 'strerror', None) or 'cannot be read'}") from error
    if not lines:
        raise InputError(f"{file}:1: empty; the first line holds the space")
    header = _parsed(file, 1, lines[0], LandscapeHeader)
    settings = tuple(_parsed(file, number, line, LandscapeSetting) for number, line in enumerate(lines[1:], 2) if line)
    landscape = Landscape(header=header, settings=settings)
    for number, problem in _problems(landscape):
        raise InputError(f"{file}:{number}: {problem}")
    return landscape


def _parsed(file: Path, number: int, line: str, kind: type[Line]) -> Line:
    try:
        return kind.model_validate(json.loads(line), strict=False)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        if first["type"] == "extra_forbidden":
            raise InputError(f"{file}:{number}: {unknown_word('key', place, kind.model_fields)}") from error
        raise InputError(f"{file}:{number}: {place}{': ' if place else ''}{first['msg']}") from error
    except ValueError as error:
        raise InputError(f"{file}:{number}: not JSON: {error}") from error


def _problems(landscape: Landscape) -> Iterator[tuple[int, str]]:
    """Line and message of what is wrong between the lines."""
    base, space = landscape.header.base, landscape.header.space
    seen: dict[AssignmentKey, int] = {}
    for number, one in enumerate(landscape.settings, 2):
        if not is_legal(space, base, one.setting):
            why = "inactive axes must be left out" if is_legal(space, base, canonical(space, base, one.setting)) else ""
            yield number, f"the setting {dict(one.setting)} is not legal in the space of line 1{'; ' * bool(why)}{why}"
        if (first := seen.setdefault(key_of(one.setting), number)) != number:
            yield number, f"the setting of line {first} again"
    default = base_assignment(space, base)
    if default is not None and not _is_measured(landscape, key_of(default)):
        yield 1, "base is the default, but no line has a value for it"
    if not any(one.is_feasible for one in landscape.settings):
        yield 1, "no setting is feasible"


def _is_measured(landscape: Landscape, key: AssignmentKey) -> bool:
    place = landscape.by_key.get(key)
    return place is not None and landscape.settings[place].value is not None


def write_landscape(landscape: Landscape, file: Path) -> None:
    """Write one line for the space and one per setting.

    Raises:
        OSError: the file cannot be written.

    """
    header = landscape.header.model_dump(exclude_defaults=True) | {"landscape": landscape.header.landscape}
    lines = (header, *(one.model_dump(exclude_defaults=True) for one in landscape.settings))
    content = "".join(f"{json.dumps(line, default=dict)}\n" for line in lines).encode()
    file.write_bytes(gzip.compress(content, mtime=0) if file.suffix == ".gz" else content)


def _noise(records: StudyRecords) -> float:
    """Spread of the logarithm of the objective between boots of one setting, pooled over all trials that were measured again.

    The objective is a mean over the workloads, whose spreads are taken as independent.
    """
    metric, of_trial = records.config.objective.metric, defaultdict[str, list[float]](list)
    for record in records.records:
        of_trial[record.id] += [math.log(one.value) for one in boot_values([record], metric)]
    again = [values for values in of_trial.values() if len(values) > 1]
    squares = math.fsum((value - fmean(values)) ** 2 for values in again for value in values)
    if not again:
        return 0.0
    of_a_trial = math.sqrt(squares / sum(len(values) - 1 for values in again))
    return of_a_trial / math.sqrt(len(records.config.workloads))


def landscape_of(records: StudyRecords) -> Landscape:
    """What all rounds of a study measured, with the spread of its repeated settings as noise.

    Raises:
        InputError: no setting is feasible.

    """
    config = records.config
    of_setting = defaultdict[str, list[ScoredSetting]](list)
    for round_ in range(records.latest_round + 1):
        for one in scored_settings(records, round_):
            of_setting[one.spec.id].append(one)
    settings = [_mean(config, measured) for measured in of_setting.values()]
    base, space = config.default.knobs, config.space
    header = LandscapeHeader(
        name=config.name,
        metric=config.objective.metric,
        direction=config.objective.direction,
        noise=_noise(records),
        base=base,
        axes={axis.name: axis.values for axis in space.axes},
        when=space.when,
        forbid=space.forbid,
        reload_free=tuple(sorted(config.reload_free)),
    )
    legal = tuple(one for one in settings if is_legal(space, base, one.setting))
    if not any(one.is_feasible for one in legal):
        raise InputError(f"the records of {config.name} have no feasible setting")
    return Landscape(header=header, settings=legal)


def _mean(config: StudyConfig, measured: Sequence[ScoredSetting]) -> LandscapeSetting:
    """One setting over all rounds. Rounds in which it failed count only if it failed in all."""
    values = [one for one in measured if one.score.value is not None]
    return LandscapeSetting(
        setting=canonical(config.space, config.default.knobs, measured[0].spec.knobs),
        value=geometric_mean([one.score.value or 0.0 for one in values]) if values else None,
        violation=median_low([one.score.violation for one in values]) if values else 0.0,
        fault=None if values else measured[-1].fault,
        boot_s=fmean(one.boot_s for one in values or measured),
        trials_s=fmean(one.trials_s for one in values or measured),
        n=len(values or measured),
    )
