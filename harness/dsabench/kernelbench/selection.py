"""Which operators, shapes, dtypes and candidates a request means, and what there is to measure of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from difflib import get_close_matches
from fnmatch import fnmatchcase

import torch

from dsabench.kernelbench.correctness import KernelCase
from dsabench.kernelbench.request import KernelBenchRequest, KernelPoint
from dsakernels.candidates import CANDIDATES
from dsakernels.candidates.candidate import KernelCandidate, KernelDevice
from dsakernels.operator import Operator
from dsakernels.operators import OPERATORS
from dsakernels.shape import OperatorShape, parse

_CHECKED = 4
_CHECKED_KV = 1 << 15


class UnknownNameError(ValueError):
    """A name that fits nothing; the message lists what there is."""


def device_of(request: KernelBenchRequest) -> KernelDevice:
    """The device asked for; `auto` is a GPU where torch sees one.

    Raises:
        UnknownNameError: a GPU is asked for and there is none.

    """
    has_gpu = torch.cuda.is_available()
    if request.device == "cuda" and not has_gpu:
        raise UnknownNameError("--device cuda: torch sees no GPU")
    if request.device == "cpu" or not has_gpu:
        return KernelDevice("cpu", "cpu")
    properties = torch.cuda.get_device_properties()
    gcn = getattr(properties, "gcnArchName", "").partition(":")[0] if torch.version.hip else ""
    return KernelDevice("cuda", gcn or f"sm{properties.major}{properties.minor}")


def operators(request: KernelBenchRequest) -> tuple[Operator, ...]:
    """In the order of the pipeline."""
    names = _fitting("operator", request.operators, OPERATORS)
    return tuple(OPERATORS[name] for name in names)


def refuse_what_fits_nothing(request: KernelBenchRequest, chosen: Sequence[Operator]) -> None:
    """A candidate, a dtype or shapes that none of the chosen operators has would be left out in silence.

    Raises:
        UnknownNameError: there is one.

    """
    names = [operator.name for operator in chosen]
    of = f" of {', '.join(names)}" if request.operators else ""
    _fitting("candidate", request.candidates, {c.name for c in CANDIDATES if c.operator in names}, of)
    dtypes = sorted({dtype for operator in chosen for c in candidates(request, operator) for dtype in c.dtypes})
    for dtype in request.dtypes:
        if dtype not in dtypes:
            raise UnknownNameError(f"--dtypes {dtype}: what was asked for{of} is measured in {', '.join(dtypes)}")
    every = {name: shape for operator in chosen for name, shape in _every(operator).items()}
    for word in request.shapes:
        tuple(_named(word, chosen[0], every))  # raises where it is no word at all
        if _is_pattern(word) and not any(fnmatchcase(name, word) for name in every):
            near = get_close_matches(word, every, n=3, cutoff=0.0)
            raise UnknownNameError(f"--shapes {word}: fits no shape{of}; near it: {', '.join(near)}")


def candidates(request: KernelBenchRequest, operator: Operator) -> tuple[KernelCandidate, ...]:
    """Of one operator."""
    return tuple(
        candidate
        for candidate in CANDIDATES
        if candidate.operator == operator.name and _fits(candidate.name, request.candidates)
    )


def shapes(request: KernelBenchRequest, operator: Operator, device: KernelDevice) -> tuple[OperatorShape, ...]:
    """Unless told: the small ones on a CPU, the grid on a GPU; to check on a GPU, four of the grid.

    Raises:
        UnknownNameError: a word that is no pattern, no set and no id of a shape.

    """
    wanted = request.shapes or ("small" if device.kind == "cpu" else "grid",)
    every = _every(operator)
    chosen = dict.fromkeys(shape for word in wanted for shape in _named(word, operator, every))
    if request.action == "check" and not request.shapes and device.kind == "cuda":
        short = [shape for shape in chosen if shape.total_kv <= _CHECKED_KV]
        return tuple(short[:: max(1, len(short) // _CHECKED)][:_CHECKED])
    return tuple(chosen)


def _every(operator: Operator) -> dict[str, OperatorShape]:
    return {shape.id: shape for shape in (shape for of in _SETS.values() for shape in of(operator))}


_SETS: Mapping[str, Callable[[Operator], tuple[OperatorShape, ...]]] = {
    "small": lambda operator: operator.small,
    "grid": lambda operator: operator.grid(),
    "study": lambda operator: (operator.study or operator.grid)(),
    "rank": lambda operator: (operator.rank or operator.grid)(),
}


def _named(word: str, operator: Operator, every: dict[str, OperatorShape]) -> Iterator[OperatorShape]:
    if word in _SETS:
        yield from _SETS[word](operator)
    elif _is_pattern(word):
        yield from (shape for name, shape in every.items() if fnmatchcase(name, word))
    else:
        try:
            yield every.get(word) or parse(word)
        except ValueError as error:
            raise UnknownNameError(f"--shapes {error} (or a pattern, {', '.join(_SETS)})") from None


def _is_pattern(word: str) -> bool:
    return any(mark in word for mark in "*?[")


def _fitting(what: str, patterns: tuple[str, ...], names: Iterable[str], of: str = "") -> list[str]:
    known = list(names)
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in known):
            raise UnknownNameError(f"no {what} {pattern!r}{of}: one of {', '.join(sorted(known))}")
    return [name for name in known if _fits(name, patterns)]


def _fits(name: str, patterns: tuple[str, ...]) -> bool:
    return not patterns or any(fnmatchcase(name, pattern) for pattern in patterns)


Chosen = Sequence[tuple[Operator, Sequence[KernelCandidate]]]
"""Operators, and the candidates of each that run here."""


@dataclass(frozen=True, slots=True)
class TimingTask:
    """A case and its candidates: those that take its shape, and why the others do not."""

    case: KernelCase
    able: tuple[KernelCandidate, ...]
    unable: tuple[tuple[KernelCandidate, str], ...]

    def point(self, candidate: KernelCandidate) -> KernelPoint:
        """Of one candidate."""
        return KernelPoint(self.case.operator.name, candidate.name, self.case.shape.id, self.case.dtype)

    @property
    def title(self) -> str:
        """`sparse_decode v3.2-h128-b1-q1-kv8192 fp8`."""
        return f"{self.case.operator.name} {self.case.shape.id} {self.case.dtype}"


def works(
    request: KernelBenchRequest, chosen: Chosen, device: KernelDevice, done: AbstractSet[KernelPoint] = frozenset()
) -> list[TimingTask]:
    """Shape by shape, so that the candidates of one shape are measured close together; without the points `done`."""
    found = []
    for operator, runnable in chosen:
        for shape in shapes(request, operator, device):
            for dtype in operator.dtypes:
                work = _work(KernelCase(operator, shape, dtype, device.kind, request.seed), request, runnable, done)
                if work.able or work.unable:
                    found.append(work)
    return found


def _work(
    case: KernelCase, request: KernelBenchRequest, runnable: Sequence[KernelCandidate], done: AbstractSet[KernelPoint]
) -> TimingTask:
    wanted = [
        (candidate, candidate.limit(case.shape))
        for candidate in runnable
        if case.dtype in candidate.dtypes
        and (not request.dtypes or case.dtype in request.dtypes)
        and KernelPoint(case.operator.name, candidate.name, case.shape.id, case.dtype) not in done
    ]
    able = tuple(candidate for candidate, reason in wanted if reason is None)
    return TimingTask(case, able, tuple((candidate, reason) for candidate, reason in wanted if reason is not None))
