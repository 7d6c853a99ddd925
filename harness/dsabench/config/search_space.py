"""Join several sweeps into one search space, and report every contradiction between them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter

from dsabench.config.files import SweepFile
from dsabench.config.mistakes import unknown_word
from dsabench.config.yaml_file import KeyPath, YamlFile
from dsabench.errors import ConfigError
from dsabench.model.study import Assignment, Axis, SearchSpace
from dsabench.model.value import KnobValue


@dataclass(frozen=True, slots=True)
class SweepPart:
    """One sweep and its place: a file of its own, or inline below `path`."""

    source: YamlFile
    path: KeyPath
    sweep: SweepFile

    def error(self, message: str, *path: str | int) -> ConfigError:
        """A mistake at a path in the sweep."""
        return self.source.error(message, (*self.path, *path))

    def where(self, *path: str | int) -> str:
        """`file:line` of a path in the sweep."""
        return f"{self.source.file}:{self.source.place((*self.path, *path)).line}"

    def in_order(self, section: str) -> list[str]:
        """The knobs of `axes` or `when` in the order of the file."""
        named = getattr(self.sweep, section)
        return sorted(named, key=lambda knob: self.source.place((*self.path, section, knob)))


def join(parts: Sequence[SweepPart], base: Assignment | None) -> tuple[SearchSpace, list[ConfigError]]:
    """The joint space, in the order of the files, and every mistake.

    Without a base (a sweep file that is checked alone) conditions may name any knob.
    """
    sections = ("axes", "when", "when_bound")
    found = [one for section in sections for one in _contradictions(parts, section)]
    axes: dict[str, tuple[KnobValue, ...]] = {}
    when: dict[str, Mapping[str, KnobValue]] = {}
    for part in parts:
        axes |= {knob: part.sweep.axes[knob] for knob in part.in_order("axes") if knob not in axes}
        when |= {knob: part.sweep.when[knob] for knob in part.in_order("when") if knob not in when}
    for part in parts:
        found += _condition_mistakes(part, axes, base)
        found += _unknown_axes(part, axes, "when_bound")
        found += _forbid_mistakes(part, base)
    found += _cycles(parts, when)
    forbid: list[Mapping[str, KnobValue]] = []
    for part in parts:
        forbid += [rule for rule in part.sweep.forbid if rule not in forbid]
    space = SearchSpace(
        axes=tuple(Axis(name=name, values=values) for name, values in axes.items()),
        when=when,
        forbid=tuple(forbid),
        when_bound={knob: limit for part in parts for knob, limit in part.sweep.when_bound.items()},
    )
    return space, found


def _contradictions(parts: Sequence[SweepPart], section: str) -> Iterator[ConfigError]:
    first: dict[str, SweepPart] = {}
    for part in parts:
        for knob, said in getattr(part.sweep, section).items():
            other = first.setdefault(knob, part)
            if other is not part and getattr(other.sweep, section)[knob] != said:
                what = {"axes": "values", "when": "conditions"}.get(section, "limit")
                yield part.error(f"stands in {other.where(section, knob)} as well, with other {what}", section, knob)


def _condition_mistakes(
    part: SweepPart, axes: Mapping[str, tuple[KnobValue, ...]], base: Assignment | None
) -> Iterator[ConfigError]:
    """Report axes that can never be active. They would be ignored silently."""
    yield from _unknown_axes(part, axes, "when")
    for knob, conditions in part.sweep.when.items():
        for needed, value in conditions.items():
            if base is None:
                continue
            possible = {*axes.get(needed, ()), *([base[needed]] if needed in base else [])}
            if value not in possible:
                yield part.error(_never(knob, needed, value, possible), "when", knob, needed)


def _unknown_axes(part: SweepPart, axes: Mapping[str, tuple[KnobValue, ...]], section: str) -> Iterator[ConfigError]:
    for knob in getattr(part.sweep, section):
        if knob not in axes:
            yield part.error(unknown_word("axis", knob, axes), section, knob)


def _never(knob: str, needed: str, value: KnobValue, possible: set[KnobValue]) -> str:
    if not possible:
        return f"{needed} is no axis and not set in runtime.base, so {knob} would never be tried"
    taken = ", ".join(sorted(str(option) for option in possible))
    return f"{needed} is never {value} here (only {taken}), so {knob} would never be tried"


def _forbid_mistakes(part: SweepPart, base: Assignment | None) -> Iterator[ConfigError]:
    for index, rule in enumerate(part.sweep.forbid):
        if not rule:
            yield part.error("forbids everything; name at least one setting", "forbid", index)
        elif base is not None and rule.items() <= base.items():
            yield part.error("forbids the default: runtime.base has just these settings", "forbid", index)


def _cycles(parts: Sequence[SweepPart], when: Mapping[str, Mapping[str, KnobValue]]) -> Iterator[ConfigError]:
    try:
        TopologicalSorter({knob: list(conditions) for knob, conditions in when.items()}).prepare()
    except CycleError as error:
        ring = [str(knob) for knob in error.args[1]]
        part = next(part for part in parts if any(knob in part.sweep.when for knob in ring))
        knob = next(knob for knob in ring if knob in part.sweep.when)
        yield part.error(f"the conditions go round in a circle: {' → '.join(reversed(ring))}", "when", knob)
