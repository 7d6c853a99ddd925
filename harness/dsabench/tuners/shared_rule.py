"""One pair of round numbers in place of several tables: what a maintainer can review in two lines.

The best cuts of a table lie anywhere between two measured shapes. Between the same shapes all numbers cost the same, so the
roundest may be taken, and one pair may do for every table.
"""

from __future__ import annotations

import itertools
import math
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dsabench.config.load import load_study
from dsabench.config.specs import StudyConfig
from dsabench.emit.constant_text import TableEffect
from dsabench.emit.tables import File
from dsabench.errors import InputError
from dsabench.microbench.table import TABLE_NAME
from dsabench.model.tuned_table import KernelRule, RatioRule, TunedTable
from dsabench.model.value import digest_of_file
from dsabench.tuners.flashmla_auto import Case
from dsabench.tuners.kernel_table import case_of, chunks_of
from dsabench.tuners.observed import of_kernels
from dsabench.tuners.target import target_of

EXCESS_MAX = 0.001
"""Share of time that one rule for all may cost any table more than its own rule."""


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
class SharedRule:
    """The rule, and what it does under every table."""

    rule: RatioRule
    effects: tuple[TableEffect, ...]


def find_shared_rule(cases: Sequence[TableCase]) -> SharedRule:
    """The roundest (ratio, least new tokens) pair that costs no table more than `EXCESS_MAX` and slows no shape down.

    A rule without the least new tokens comes before any with it.

    Raises:
        InputError: no pair does for all tables; it says what the best one costs.

    """
    least = math.inf
    for rule in sorted(_candidates(cases), key=_roundness):
        effects = tuple(_effect(one, rule) for one in cases)
        worst = max(effect.excess for effect in effects)
        least = min(least, worst)
        if worst <= EXCESS_MAX and not any(one.case.slower_shapes(rule) for one in cases):
            return SharedRule(rule, effects)
    raise InputError(
        f"--as constant: one ratio and least number of new tokens cost some table {least:.2%} more than its own rule "
        f"(at most {EXCESS_MAX:.1%}), or slow a shape down: --as tables"
    )


def _candidates(cases: Sequence[TableCase]) -> Iterator[RatioRule]:
    """The roundest numbers between every two neighbouring shapes of the tables together."""
    steps = [point.step for one in cases for point in one.case.points]
    ratios = _round_between(sorted({step.kv_tokens / step.new_tokens for step in steps}))
    news = _round_between(sorted({float(step.new_tokens) for step in steps}))
    for ratio in ratios:
        yield RatioRule(kv_per_new_token=ratio)
        for new in news:
            yield RatioRule(kv_per_new_token=ratio, from_new_tokens=new)


def _round_between(values: Sequence[float]) -> list[int]:
    """The roundest whole number above each value and at most the next: as a lower edge it parts the two."""
    found = []
    for low, high in itertools.pairwise(values):
        inside = range(math.floor(low) + 1, math.floor(high) + 1)
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


def _effect(one: TableCase, rule: RatioRule) -> TableEffect:
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
    )


def read_case(file: File, kernels: Path | None) -> TableCase:
    """A table with the kernel times that its evidence names; `kernels` is their folder where that has moved.

    Raises:
        InputError: it is no kernel table, or its times or its config are not here.

    """
    table, rule = file.table, file.table.rule
    words = shlex.split(table.evidence.command or "")
    if not isinstance(rule, KernelRule) or words[:3] != ["dsabench", "tune", "flashmla-auto"]:
        raise InputError(f"{file.path}: no table of `tune flashmla-auto`: a constant is made of kernel times")
    named = Path(words[words.index("--kernels") + 1])
    places = [kernels] if kernels is not None else [named, *(above / named for above in file.path.resolve().parents)]
    times = next((place / TABLE_NAME for place in places if (place / TABLE_NAME).is_file()), None)
    if times is None:
        raise InputError(f"{file.path}: its kernel times are not at {named}: --kernels names their folder")
    if (found := digest_of_file(times)) != table.evidence.samples_sha256:
        raise InputError(f"{times}: not the times that {file.path.name} was fitted to (sha256 {found[:12]}…)")
    config = load_study(words[3])
    return TableCase(table, rule, config, case_of(config, of_kernels(times, target_of(config))))
