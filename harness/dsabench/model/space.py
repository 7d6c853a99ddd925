"""The legal assignments of a search space. Pure functions without state."""

from __future__ import annotations

import math
from collections.abc import Container, Iterator, Mapping, Sequence
from types import MappingProxyType

from dsabench.errors import InputError
from dsabench.model.study import Assignment, Axis, SearchSpace, holds
from dsabench.model.value import KnobValue

AssignmentKey = tuple[tuple[str, KnobValue], ...]
"""An assignment as a hashable value: its items, sorted by name."""


def key_of(assignment: Assignment) -> AssignmentKey:
    """The hashable form of an assignment. The order of its items does not matter."""
    return tuple(sorted(assignment.items()))


def boot_key(settings: Assignment, reload_free: Container[str]) -> AssignmentKey:
    """Equal for settings that can share a boot, because they differ in values of reload-free knobs alone."""
    return key_of({name: True if name in reload_free else value for name, value in settings.items()})


def is_active(space: SearchSpace, name: str, settings: Assignment) -> bool:
    """Whether an axis is searched under these settings (base and earlier axes)."""
    return holds(space.when.get(name, {}), settings)


def is_forbidden(space: SearchSpace, settings: Assignment) -> bool:
    """Whether a `forbid` rule matches these settings (base and assignment)."""
    return any(holds(rule, settings) for rule in space.forbid)


def legal(space: SearchSpace, base: Assignment) -> Iterator[Assignment]:
    """Yield every legal assignment once; the last axis changes fastest. Inactive axes are left out.

    Raises:
        InputError: the conditions form a cycle.

    """
    axes = space.ordered
    yield from _extend(space, axes, _rules_by_depth(space, axes), base, MappingProxyType({}))


def _extend(
    space: SearchSpace,
    axes: Sequence[Axis],
    rules: Sequence[Sequence[Mapping[str, KnobValue]]],
    base: Assignment,
    chosen: Assignment,
) -> Iterator[Assignment]:
    """Search depth first over the remaining axes. `rules` holds the rules to check at each depth, one more than axes."""
    settings = {**base, **chosen}
    if any(holds(rule, settings) for rule in rules[0]):
        return
    if not axes:
        yield chosen
        return
    axis, rest = axes[0], axes[1:]
    if not is_active(space, axis.name, settings):
        yield from _extend(space, rest, rules[1:], base, chosen)
        return
    for value in axis.values:
        yield from _extend(space, rest, rules[1:], base, MappingProxyType({**chosen, axis.name: value}))


def _rules_by_depth(space: SearchSpace, axes: Sequence[Axis]) -> list[list[Mapping[str, KnobValue]]]:
    """Put each rule at the depth where its last axis has a value, so that a whole subtree is skipped as early as
    possible.
    """
    depth = {axis.name: position + 1 for position, axis in enumerate(axes)}
    rules: list[list[Mapping[str, KnobValue]]] = [[] for _ in range(len(axes) + 1)]
    for rule in space.forbid:
        rules[max((depth.get(name, 0) for name in rule), default=0)].append(rule)
    return rules


def is_legal(space: SearchSpace, base: Assignment, assignment: Assignment) -> bool:
    """Whether the assignment sets exactly the active axes, each to one of its values, and nothing forbids it."""
    settings = dict(base)
    expected = 0
    for axis in space.ordered:
        if is_active(space, axis.name, settings):
            if axis.name not in assignment or assignment[axis.name] not in axis.values:
                return False
            settings[axis.name] = assignment[axis.name]
            expected += 1
    return expected == len(assignment) and not is_forbidden(space, settings)


def canonical(space: SearchSpace, base: Assignment, settings: Assignment) -> Assignment:
    """The values of the active axes only. Inactive axes and other knobs are dropped."""
    effective, chosen = dict(base), dict[str, KnobValue]()
    for axis in space.ordered:
        if axis.name in settings and is_active(space, axis.name, effective):
            chosen[axis.name] = effective[axis.name] = settings[axis.name]
    return MappingProxyType(chosen)


def completed(space: SearchSpace, base: Assignment, partial: Assignment) -> Assignment:
    """Complete a partial assignment: other active axes take the base's value, or their first one."""
    effective, chosen = {**base, **partial}, dict[str, KnobValue]()
    for axis in space.ordered:
        if is_active(space, axis.name, effective):
            value = effective.get(axis.name, axis.values[0])
            chosen[axis.name] = effective[axis.name] = value
    return MappingProxyType(chosen)


def base_assignment(space: SearchSpace, base: Assignment) -> Assignment | None:
    """The base settings as an assignment; None if they lie outside the space."""
    chosen = canonical(space, base, base)
    return chosen if is_legal(space, base, chosen) else None


def count(space: SearchSpace, base: Assignment, cap: int = 1_000_000) -> int:
    """Count the legal assignments, up to `cap`."""
    axes = space.ordered
    rules = _rules_by_depth(space, axes)
    free = [_free_product(space, axes[depth:], rules[depth + 1 :]) for depth in range(len(axes) + 1)]
    settings = dict(base)

    def below(depth: int, limit: int) -> int:
        if any(holds(rule, settings) for rule in rules[depth]):
            return 0
        product = free[depth]
        if product is not None:
            return min(product, limit)
        axis = axes[depth]
        if not is_active(space, axis.name, settings):
            return below(depth + 1, limit)
        found, before = 0, settings.get(axis.name)
        for value in axis.values:
            settings[axis.name] = value
            found += below(depth + 1, limit - found)
            if found >= limit:
                break
        if before is None:
            del settings[axis.name]
        else:
            settings[axis.name] = before
        return found

    return below(0, cap)


def _free_product(
    space: SearchSpace, axes: Sequence[Axis], rules: Sequence[Sequence[Mapping[str, KnobValue]]]
) -> int | None:
    """The number of combinations of axes that no condition and no rule mentions; None if one does."""
    if any(rules) or any(space.when.get(axis.name) for axis in axes):
        return None
    return math.prod(len(axis.values) for axis in axes)


def require_some(space: SearchSpace, base: Assignment) -> None:
    """Refuse a space without a legal setting.

    Raises:
        InputError: there is none, or the conditions form a cycle.

    """
    if next(legal(space, base), None) is None:
        raise InputError(
            f"the search space is empty: {len(space.forbid)} forbid rules exclude every combination of "
            f"{', '.join(axis.name for axis in space.axes) or 'the base'}"
        )
