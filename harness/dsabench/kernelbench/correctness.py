"""Are the candidates of a case right: their outputs against the reference in float64, on random query rows, the first and
the last; every row of them has to be written.

A case's inputs are drawn once and given to all its candidates: drawing them, and the reference, take longer than most
kernels.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import torch

from dsakernels.candidates.candidate import Call, KernelCandidate
from dsakernels.operator import Dtype, Operator, relative_error
from dsakernels.shape import OperatorShape

T = TypeVar("T")
ROWS = 256
"""Random rows that a verdict rests on, at least: queries, or their parts, such as heads."""
_BLOCK = 64
_FAULTS = (RuntimeError, ValueError, TypeError, AttributeError, AssertionError, LookupError, ImportError, OSError)
"""What kernels, compilers and their bindings raise."""
_NO_MEMORY = ("DefaultCPUAllocator: can't allocate memory", "Storage size calculation overflowed")
"""On a CPU torch has no class of its own for it."""


@dataclass(frozen=True, slots=True)
class Correctness:
    """`rel_err` is None where an output is not whole (see `errors_of`); `rounded_err` where a candidate rounds no inputs by design."""

    rel_err: float | None
    rows: int
    tolerance: float
    rounded_err: float | None = None
    """Against the reference over the inputs as the candidate rounds them: what it is held to, if it does."""

    @property
    def is_right(self) -> bool:
        """Within the tolerance."""
        held = self.rel_err if self.rounded_err is None else self.rounded_err
        return held is not None and held <= self.tolerance


@dataclass(frozen=True, slots=True)
class CandidateFault:
    """A candidate raised, or there was not the memory for it."""

    reason: str
    is_memory: bool = False


class ContextLostError(Exception):
    """After an illegal access of memory a CUDA context answers nothing more; the process has to be another."""


@dataclass(frozen=True, slots=True)
class KernelCase:
    """What candidates are compared on."""

    operator: Operator
    shape: OperatorShape
    dtype: Dtype
    device: str
    seed: int

    def draws(self) -> Iterator[Any]:
        """Inputs without end, each from a seed of its own; what `redraw` keeps is shared by all."""
        first = None
        for number in itertools.count():
            generator = torch.Generator(self.device).manual_seed(self.seed + number)
            if first is not None and self.operator.redraw is not None:
                yield self.operator.redraw(first, generator)
            else:
                first = self.operator.make(self.shape, self.dtype, generator)
                yield first


@dataclass(slots=True)
class CaseResults:
    """Verdicts by candidate, and the inputs of the first draws, for timing."""

    verdicts: dict[str, Correctness | CandidateFault]
    kept: list[Any]


@dataclass(frozen=True, slots=True)
class ExpectedRows:
    """Rows of one draw, and the reference's answer for each block of them."""

    rows: torch.Tensor
    expected: Sequence[torch.Tensor]
    norms: Sequence[torch.Tensor | None]
    """What the errors of each block's rows are held against, if not the answer's own norm."""


def examine(
    case: KernelCase,
    candidates: Sequence[KernelCandidate],
    *,
    keep: int = 0,
    start: Callable[[KernelCandidate], None] = lambda _c: None,
) -> CaseResults:
    """Draw inputs until `ROWS` rows of every candidate are held against the reference.

    `start` hears which candidate runs next. A candidate that is wrong or raises is not run again.

    Raises:
        ContextLostError: with the faults so far in `args`, as `verdicts`.

    """
    found = CaseResults({}, [])
    worst: dict[str, list[float]] = {}
    seen = 0
    for number, inputs in enumerate(case.draws()):
        if seen >= ROWS and number >= keep:
            break
        if number < keep:
            found.kept.append(inputs)
        if seen >= ROWS:
            continue
        rows = _some_rows(case, number, ROWS)
        asked = ask(case.operator, inputs, rows)
        seen += len(rows) * (1 if case.operator.parts is None else case.operator.parts(case.shape))
        for candidate in candidates:
            if candidate.name in found.verdicts:
                continue
            start(candidate)
            answer = try_call(partial(_errors_of_bound, case, candidate, inputs, asked), case.device)
            if isinstance(answer, CandidateFault):
                found.verdicts[candidate.name] = answer
                stop_if_lost(case.device, found.verdicts)
                continue
            worst[candidate.name] = list(map(max, worst.get(candidate.name, answer), answer))
            if not all(map(math.isfinite, answer)):
                found.verdicts[candidate.name] = _verdict(case, candidate, seen, [None])
    settled = {c.name: _verdict(case, c, seen, worst[c.name]) for c in candidates if c.name not in found.verdicts}
    found.verdicts.update(settled)
    return found


def _verdict(case: KernelCase, candidate: KernelCandidate, rows: int, errors: Sequence[float | None]) -> Correctness:
    return Correctness(errors[0], rows, candidate.tolerance_of(case.operator, case.dtype), *errors[1:])


def ask(operator: Operator, inputs: Any, rows: torch.Tensor) -> ExpectedRows:
    """The reference's answer, a block at a time: it needs more memory than the kernels."""
    parts = torch.split(rows, _BLOCK)
    norms = [None if operator.norms is None else operator.norms(inputs, part) for part in parts]
    return ExpectedRows(rows, [operator.expected(inputs, part) for part in parts], norms)


def try_call(act: Callable[[], T], device: str) -> T | CandidateFault:
    """What it returns, or how it failed; memory that a failure left is given back."""
    try:
        return act()
    except torch.OutOfMemoryError as error:
        fault = CandidateFault(_first_line(error), is_memory=True)
    except _FAULTS as error:
        reason = f"{type(error).__name__}: {_first_line(error)}".rstrip(": ")
        fault = CandidateFault(reason, is_memory=any(words in reason for words in _NO_MEMORY))
    if device == "cuda" and fault.is_memory:
        torch.cuda.empty_cache()
    return fault


def stop_if_lost(device: str, verdicts: dict[str, Correctness | CandidateFault]) -> None:
    """After a fault: whether the context still answers.

    Raises:
        ContextLostError: it does not.

    """
    if device != "cuda":
        return
    try:
        torch.cuda.synchronize()
    except RuntimeError as error:
        raise ContextLostError(verdicts) from error


def _errors_of_bound(case: KernelCase, candidate: KernelCandidate, inputs: Any, asked: ExpectedRows) -> list[float]:
    call = candidate.bind(inputs)
    if candidate.rounds is None:
        return errors_of(case, inputs, call, [asked])
    return errors_of(case, inputs, call, [asked, ask(case.operator, candidate.rounds(inputs), asked.rows)])


def errors_of(case: KernelCase, inputs: Any, call: Call, references: Sequence[ExpectedRows]) -> list[float]:
    """Largest relative error of the rows asked for against each reference, NaN where the output is not whole.

    The call runs twice. The first output is overwritten with what is never right and given back to the allocator, so
    that a kernel which leaves rows unwritten returns that, and not the right answer of an earlier call. So is what it
    has to write into its inputs. All rows are looked through for it, not only those asked for: of 16,384 rows the one
    that a last block left out is among 256 random ones once in 64 checks.
    """
    poison(call())
    if case.operator.spoil is not None:
        case.operator.spoil(inputs)
    output = call()
    if not _is_whole(case, inputs, output):
        return [math.nan] * len(references)
    return [_error(case, inputs, output, asked) for asked in references]


def _is_whole(case: KernelCase, inputs: Any, output: torch.Tensor) -> bool:
    """Whether every row is finite and points, where it points, to what is its own."""
    rows = torch.arange(case.operator.rows(case.shape), device=case.device)
    return all(bool(case.operator.pick(inputs, output, part).isfinite().all()) for part in torch.split(rows, ROWS))


def _error(case: KernelCase, inputs: Any, output: torch.Tensor, asked: ExpectedRows) -> float:
    by_part = case.operator.parts is not None
    errors = [
        relative_error(case.operator.pick(inputs, output, part), answer, by_part=by_part, norms=norms)
        for part, answer, norms in zip(torch.split(asked.rows, _BLOCK), asked.expected, asked.norms, strict=True)
    ]
    return max(errors) if all(map(math.isfinite, errors)) else math.nan


def poison(output: torch.Tensor) -> None:
    """Overwrite an output: NaN in floats (byte 0xFF is NaN in e4m3 too), -7 in integers."""
    if output.dtype.is_floating_point and output.element_size() > 1:
        output.fill_(math.nan)
    elif output.element_size() == 1:
        output.view(torch.uint8).fill_(255)
    else:
        output.fill_(-7)


def _some_rows(case: KernelCase, number: int, most: int) -> torch.Tensor:
    """Random ones, and the two at which blocks of a kernel begin and end."""
    generator = torch.Generator(case.device).manual_seed(case.seed + number)
    rows = case.operator.rows(case.shape)
    some = torch.randperm(rows, generator=generator, device=case.device)[:most]
    ends = torch.tensor(sorted({0, rows - 1}), device=case.device)
    return torch.cat((some, ends[~torch.isin(ends, some)]))


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else ""
