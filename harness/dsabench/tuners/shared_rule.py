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
from dsabench.kernelbench.table import TABLE_NAME
from dsabench.model.tuned_table import KernelRule, RatioRule, TunedTable
from dsabench.model.value import digest_of_file
from dsabench.tuners.flashmla_auto import Case, gains_of
from dsabench.tuners.kernel_table import case_of, chunks_of
from dsabench.tuners.observed import KERNELS, Observed, of_kernels
from dsabench.tuners.prefill_mix import Step
from dsabench.tuners.target import shipped_rule, target_of

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
class LaunchedTimes:
    """What one run of tune_dsa_prefill.py printed for a number of heads: times with the launches, which kernel times inside a CUDA
    graph leave out.
    """

    device: str
    """As in a table's key."""
    heads: int
    case: Case
    """Every batch equal in weight."""
    mib: tuple[tuple[float, float], ...]
    """What a call of flashmla_sparse and of flashmla_kv allocated at its peak, for each batch."""

    def effect(self, rule: RatioRule) -> LaunchedEffect:
        """What a rule does here."""
        case, kernels = self.case, self.case.kernels(rule)
        taken = [sparse for (sparse, _), kernel in zip(self.mib, kernels, strict=True) if kernel == KERNELS[0]]
        return LaunchedEffect(
            shapes=len(case.points),
            lost=case.mean(case.lost(kernels)),
            lost_shipped=case.mean(case.lost(case.kernels(case.shipped))),
            slowest=float(case.slower(kernels).max()),
            sparse_mib=max(taken, default=0.0),
            kv_mib=max(kv for _, kv in self.mib),
        )


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
    devices, heads = {one.table.device for one in cases}, {one.table.heads_per_rank for one in cases}
    known = [one for one in launched if one.heads in heads]
    here = {(one.device, one.heads): one for one in known if one.device in devices}
    measured = [*(one.case for one in cases), *(one.case for one in here.values())]
    slowing_none = [
        (rule, tuple(_effect(one, rule, here) for one in cases))
        for rule in sorted(_candidates(measured), key=_roundness)
        if not any(case.slower_shapes(rule) for case in measured)
    ]
    least = min((_worst(effects) for _, effects in slowing_none), default=None)
    limit = EXCESS_MAX if least is None or not here else max(EXCESS_MAX, least + _SAME)
    for rule, effects in slowing_none:
        if _worst(effects) <= limit:
            others = [(one.device, one.heads, one.effect(rule)) for one in known if one.device not in devices]
            return SharedRule(rule, effects, tuple(others))
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


def _candidates(cases: Sequence[Case]) -> Iterator[RatioRule]:
    """Round numbers between every two neighbouring shapes of all cases together."""
    steps = [point.step for case in cases for point in case.points]
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


def _effect(one: TableCase, rule: RatioRule, here: Mapping[tuple[str, int], LaunchedTimes]) -> TableEffect:
    case, kernels, own = one.case, one.case.kernels(rule), one.case.kernels(one.rule)
    new, kv = zip(*(point.step for point in case.points), strict=True)
    launched = here.get((one.table.device, one.table.heads_per_rank))
    return TableEffect(
        table=one.table,
        chunks=tuple(chunks_of(one.config)),
        workloads=tuple(one.config.workloads),
        excess=case.mean(case.lost(kernels) - case.lost(own)),
        gains=gains_of(case, rule, kernels),
        shapes=len(case.points),
        new_tokens=(min(new), max(new)),
        kv_tokens=(min(kv), max(kv)),
        launched=None if launched is None else launched.effect(rule),
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


_CELLS = 7


def read_launched(files: Sequence[Path]) -> list[LaunchedTimes]:
    """The times that tune_dsa_prefill.py printed, by GPU and number of heads.

    Raises:
        InputError: a file cannot be read, or has no times.

    """
    found: dict[tuple[str, int], list[tuple[Observed, tuple[float, float]]]] = {}
    for file in files:
        try:
            first, *lines = file.read_text(encoding="utf-8").splitlines() or [""]
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"{file}: {getattr(error, 'strerror', None) or error}") from error
        rows = [(number, cells) for number, line in enumerate(lines, 2) if len(cells := line.split(",")) == _CELLS]
        batches = [_batch(cells, f"{file}:{number}") for number, cells in rows if cells[0] != "heads"]
        if not batches or "," in first:
            raise InputError(
                f"{file}: tune_dsa_prefill.py prints the GPU's name and then a line of {_CELLS} numbers a batch"
            )
        for heads, point, mib in batches:
            found.setdefault((first.strip().replace(" ", "_"), heads), []).append((point, mib))
    times = []
    for (device, heads), batches_of in found.items():
        points = tuple(point for point, _ in batches_of)
        case = Case(points, np.ones(len(points)), shipped_rule(device))
        times.append(LaunchedTimes(device, heads, case, tuple(mib for _, mib in batches_of)))
    return times


def _batch(cells: Sequence[str], place: str) -> tuple[int, Observed, tuple[float, float]]:
    try:
        heads, new, kv = map(int, cells[:3])
        sparse_us, kv_us, sparse_mib, kv_mib = map(float, cells[3:])
    except ValueError as error:
        raise InputError(f"{place}: {error}") from error
    if min(heads, new, kv) < 1 or not (0 < sparse_us < math.inf and 0 < kv_us < math.inf):
        raise InputError(f"{place}: no counts and times: {','.join(cells)[:80]}")
    us = dict(zip(KERNELS, (sparse_us, kv_us), strict=True))
    return heads, Observed(Step(new, kv), us, SLOWER_MAX), (sparse_mib, kv_mib)
