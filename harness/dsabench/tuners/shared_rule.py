"""One pair of round numbers in place of several tables: what a maintainer can review in two lines.

The best cuts of a table lie anywhere between two measured shapes. Between the same shapes all numbers cost the same, so the
roundest may be taken, and one pair may do for every table.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np

from dsabench.config.load import load_study
from dsabench.config.specs import StudyConfig
from dsabench.emit.constant_text import LaunchedEffect, TableEffect
from dsabench.emit.tables import File
from dsabench.errors import InputError
from dsabench.microbench.table import TABLE_NAME
from dsabench.model.tuned_table import KernelRule, RatioRule, TunedTable, choose
from dsabench.model.value import digest_of_file
from dsabench.tuners.flashmla_auto import Case
from dsabench.tuners.kernel_table import case_of, chunks_of
from dsabench.tuners.observed import KERNELS, of_kernels
from dsabench.tuners.prefill_mix import Step
from dsabench.tuners.target import target_of

EXCESS_MAX = 0.001
"""Share of time that one rule for all may cost any table more than its own rule."""
SLOWER_MAX = 0.02
"""Share of time that a shape may seem slower with its launches: the noise of such times."""
_SAME = 1e-4


@dataclass(frozen=True, slots=True)
class TableCase:
    """A table and the kernel times that it was fitted to."""

    table: TunedTable
    rule: KernelRule
    """The table's own."""
    config: StudyConfig
    """Whose workloads weigh the times."""
    case: Case


@dataclass(frozen=True, slots=True)
class LaunchedShape:
    """One batch as tune_dsa_prefill.py timed it: with the launches, which kernel times inside a CUDA graph leave out."""

    heads: int
    step: Step
    sparse_us: float
    kv_us: float
    sparse_mib: float
    kv_mib: float

    def takes_sparse(self, rule: RatioRule) -> bool:
        """Whether the rule takes flashmla_sparse."""
        return choose(rule, new_tokens=self.step.new_tokens, kv_tokens=self.step.kv_tokens) == KERNELS[0]

    def slower(self, rule: RatioRule) -> float:
        """Share of time that the rule loses against flashmla_kv."""
        return self.sparse_us / self.kv_us - 1.0 if self.takes_sparse(rule) else 0.0

    def lost(self, rule: RatioRule) -> float:
        """Share of time that the rule loses against the faster kernel."""
        return (self.sparse_us if self.takes_sparse(rule) else self.kv_us) / min(self.sparse_us, self.kv_us) - 1.0


@dataclass(frozen=True, slots=True)
class LaunchedTimes:
    """What one run of tune_dsa_prefill.py printed."""

    device: str
    """As in a table's key."""
    shapes: tuple[LaunchedShape, ...]


@dataclass(frozen=True, slots=True)
class SharedRule:
    """The rule, and what it does under every table."""

    rule: RatioRule
    effects: tuple[TableEffect, ...]
    elsewhere: tuple[tuple[str, int, LaunchedEffect], ...] = ()
    """(GPU, heads, effect) on other GPUs than the tables': to be known, and no part of the choice."""


def find_shared_rule(cases: Sequence[TableCase], launched: Sequence[LaunchedTimes] = ()) -> SharedRule:
    """The roundest (ratio, least new tokens) pair that costs no table more than `EXCESS_MAX` and slows no shape down.

    Times with launches of the tables' GPU refuse what slows one of their shapes down. Where that leaves only pairs beyond `EXCESS_MAX`, those that cost
    least are taken. A rule without the least new tokens comes before any with it.

    Raises:
        InputError: no pair does for all tables; it says what the best one costs.

    """
    devices = {one.table.device for one in cases}
    here = [times for times in launched if times.device in devices]
    timed = {one.table.heads_per_rank: _shapes(here, one.table) for one in cases}
    slowing_none = [
        (rule, effects)
        for rule in sorted(_candidates(cases, timed), key=_roundness)
        if not any(one.case.slower_shapes(rule) for one in cases)
        and all(shape.slower(rule) <= SLOWER_MAX for shapes in timed.values() for shape in shapes)
        for effects in [tuple(_effect(one, rule, timed) for one in cases)]
    ]
    least = min((_worst(effects) for _, effects in slowing_none), default=None)
    limit = EXCESS_MAX if least is None or not here else max(EXCESS_MAX, least + _SAME)
    for rule, effects in slowing_none:
        if _worst(effects) <= limit:
            others = [(times, one) for times in launched if times.device not in devices for one in effects]
            elsewhere = (
                (times.device, one.table.heads_per_rank, _launched(_shapes([times], one.table), rule))
                for times, one in others
            )
            return SharedRule(
                rule, effects, tuple((gpu, heads, one) for gpu, heads, one in elsewhere if one is not None)
            )
    costs = (
        "every pair slows a shape down"
        if least is None
        else f"the best costs some table {least:.2%} more than its own rule"
    )
    raise InputError(
        f"--as constant: no ratio and least number of new tokens does for all tables: {costs} (at most {EXCESS_MAX:.1%}, and no "
        "shape slower): --as tables"
    )


def _worst(effects: Sequence[TableEffect]) -> float:
    return max(effect.excess for effect in effects)


def _shapes(launched: Sequence[LaunchedTimes], table: TunedTable) -> tuple[LaunchedShape, ...]:
    return tuple(shape for times in launched for shape in times.shapes if shape.heads == table.heads_per_rank)


def _candidates(cases: Sequence[TableCase], timed: Mapping[int, Sequence[LaunchedShape]]) -> Iterator[RatioRule]:
    """Round numbers between every two neighbouring shapes of the tables and times together."""
    steps = [point.step for one in cases for point in one.case.points]
    steps += [shape.step for shapes in timed.values() for shape in shapes]
    ratios = _round_between(sorted({step.kv_tokens / step.new_tokens for step in steps}))
    news = _round_between(sorted({float(step.new_tokens) for step in steps}))
    for ratio in ratios:
        yield RatioRule(kv_per_new_token=ratio)
        for new in news:
            yield RatioRule(kv_per_new_token=ratio, from_new_tokens=new)


def _round_between(values: Sequence[float]) -> list[int]:
    """The roundest whole number in the middle half (of logarithms) between every two values, or anywhere between them.

    As a lower edge every number above a value and at most the next parts the two alike. What lies between two shapes was not
    measured, so neither end is as good a guess as the middle.
    """
    found = []
    for low, high in pairwise(values):
        quarter = (high / low) ** 0.25
        inside = range(math.ceil(low * quarter), math.floor(high / quarter) + 1)
        inside = inside or range(math.floor(low) + 1, math.floor(high) + 1)
        if inside:
            found.append(_roundest(inside, (low * high) ** 0.5))
    return found


def _roundest(numbers: range, middle: float) -> int:
    """Of those with the fewest digits before their zeros, the one nearest to the middle."""
    step = 10 ** int(math.log10(numbers[-1]))
    while True:
        found = range(-(-numbers[0] // step) * step, numbers[-1] + 1, step)
        if found:
            return min(found, key=lambda number: (_digits(number), abs(math.log(number / middle))))
        step //= 10


def _digits(number: float) -> tuple[int, bool]:
    """Digits before the zeros, and whether they are other than 1, 2 or 5."""
    head = str(int(number)).rstrip("0")
    return len(head), head not in ("1", "2", "5")


def _roundness(rule: RatioRule) -> tuple[object, ...]:
    numbers = [rule.kv_per_new_token, *([rule.from_new_tokens] if rule.from_new_tokens else [])]
    return len(numbers), sorted(map(_digits, numbers), reverse=True), numbers


def _effect(one: TableCase, rule: RatioRule, timed: Mapping[int, Sequence[LaunchedShape]]) -> TableEffect:
    case, kernels, own = one.case, one.case.kernels(rule), one.case.kernels(one.rule)
    slower = case.slower(kernels)
    new, kv = zip(*(point.step for point in case.points), strict=True)
    return TableEffect(
        table=one.table,
        config=one.config.name,
        chunks=tuple(chunks_of(one.config)),
        workloads=tuple(one.config.workloads),
        excess=case.mean(case.lost(kernels) - case.lost(own)),
        gain=math.expm1(-case.mean(np.log1p(slower))),
        least=1.0 / (1.0 + float(slower.max())) - 1.0,
        median=1.0 / (1.0 + float(np.median(slower))) - 1.0,
        shapes=len(case.points),
        new_tokens=(min(new), max(new)),
        kv_tokens=(min(kv), max(kv)),
        launched=_launched(timed[one.table.heads_per_rank], rule),
    )


def _launched(shapes: Sequence[LaunchedShape], rule: RatioRule) -> LaunchedEffect | None:
    if not shapes:
        return None
    taken = [shape for shape in shapes if shape.takes_sparse(rule)]
    return LaunchedEffect(
        shapes=len(shapes),
        lost=sum(shape.lost(rule) for shape in shapes) / len(shapes),
        lost_shipped=sum(shape.kv_us / min(shape.kv_us, shape.sparse_us) - 1.0 for shape in shapes) / len(shapes),
        slowest=max(shape.slower(rule) for shape in shapes),
        sparse_mib=max((shape.sparse_mib for shape in taken), default=0.0),
        kv_mib=max(shape.kv_mib for shape in shapes),
    )


_HOPPER = ("H100", "H200", "H800", "H20", "GH200")


def _option_at(words: Sequence[str]) -> tuple[str, str]:
    """The option behind the config of a tune command, and its value."""
    return (words[4], words[5]) if len(words) >= 6 else ("", "")


def read_case(file: File, kernels: Path | None) -> TableCase:
    """A table with the kernel times that its evidence names; `kernels` is their folder where that has moved.

    Raises:
        InputError: it is no kernel table, or its times or its config are not here.

    """
    table, rule = file.table, file.table.rule
    words = shlex.split(table.evidence.command or "")
    option, value = _option_at(words)
    if not isinstance(rule, KernelRule) or words[:3] != ["dsabench", "tune", "flashmla-auto"] or option != "--kernels":
        raise InputError(f"{file.path}: no table of `tune flashmla-auto`: a constant is made of kernel times")
    if not any(name in table.device for name in _HOPPER):
        raise InputError(
            f"{file.path}: is for {table.device}; a constant is for Hopper, where sglang has no rule of its own"
        )
    named = Path(value)
    places = [kernels] if kernels is not None else [named, *(above / named for above in file.path.resolve().parents)]
    times = next((place / TABLE_NAME for place in places if (place / TABLE_NAME).is_file()), None)
    if times is None:
        raise InputError(f"{file.path}: its kernel times are not at {named}: --kernels names their folder")
    if (found := digest_of_file(times)) != table.evidence.samples_sha256:
        raise InputError(f"{times}: not the times that {file.path.name} was fitted to (sha256 {found[:12]}…)")
    config = load_study(words[3])
    return TableCase(table, rule, config, case_of(config, of_kernels(times, target_of(config))))


def read_launched(file: Path) -> LaunchedTimes:
    """The times that tune_dsa_prefill.py printed.

    Raises:
        InputError: it cannot be read, or has no times.

    """
    try:
        first, *lines = file.read_text(encoding="utf-8").splitlines() or [""]
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{file}: {getattr(error, 'strerror', None) or error}") from error
    rows = [(number, cells) for number, line in enumerate(lines, 2) if len(cells := line.split(",")) == _CELLS]
    shapes = [_shape(cells, f"{file}:{number}") for number, cells in rows if cells[0] != "heads"]
    if not shapes or "," in first:
        raise InputError(
            f"{file}: tune_dsa_prefill.py prints the GPU's name and then a line of {_CELLS} numbers a batch"
        )
    return LaunchedTimes(first.strip().replace(" ", "_"), tuple(shapes))


_CELLS = 7


def _shape(cells: Sequence[str], place: str) -> LaunchedShape:
    try:
        heads, new, kv = map(int, cells[:3])
        sparse_us, kv_us, sparse_mib, kv_mib = map(float, cells[3:])
    except ValueError as error:
        raise InputError(f"{place}: {error}") from error
    if min(heads, new, kv) < 1 or not (0 < sparse_us < math.inf and 0 < kv_us < math.inf):
        raise InputError(f"{place}: no counts and times: {','.join(cells)[:80]}")
    return LaunchedShape(heads, Step(new, kv), sparse_us, kv_us, sparse_mib, kv_mib)
