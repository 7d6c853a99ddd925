"""What there is to measure: cases, and the candidates asked for each."""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from dsabench.microbench import choose
from dsabench.microbench.check import Case
from dsabench.microbench.request import Point, Request
from dsakernels.candidates.candidate import Candidate, Device
from dsakernels.operator import Operator

Chosen = Sequence[tuple[Operator, Sequence[Candidate]]]
"""Operators, and the candidates of each that run here."""


@dataclass(frozen=True, slots=True)
class Work:
    """A case and its candidates: those that take its shape, and why the others do not."""

    case: Case
    able: tuple[Candidate, ...]
    unable: tuple[tuple[Candidate, str], ...]

    def point(self, candidate: Candidate) -> Point:
        """Of one candidate."""
        return Point(self.case.operator.name, candidate.name, self.case.shape.id, self.case.dtype)

    @property
    def title(self) -> str:
        """`sparse_decode v3.2-h128-b1-q1-kv8192 fp8`."""
        return f"{self.case.operator.name} {self.case.shape.id} {self.case.dtype}"


def works(request: Request, chosen: Chosen, device: Device, done: AbstractSet[Point] = frozenset()) -> list[Work]:
    """Shape by shape, so that the candidates of one shape are measured close together; without the points `done`."""
    found = []
    for operator, runnable in chosen:
        for shape in choose.shapes(request, operator, device):
            for dtype in operator.dtypes:
                work = _work(Case(operator, shape, dtype, device.kind, request.seed), request, runnable, done)
                if work.able or work.unable:
                    found.append(work)
    return found


def _work(case: Case, request: Request, runnable: Sequence[Candidate], done: AbstractSet[Point]) -> Work:
    wanted = [
        (candidate, candidate.limit(case.shape))
        for candidate in runnable
        if case.dtype in candidate.dtypes
        and (not request.dtypes or case.dtype in request.dtypes)
        and Point(case.operator.name, candidate.name, case.shape.id, case.dtype) not in done
    ]
    able = tuple(candidate for candidate, reason in wanted if reason is None)
    return Work(case, able, tuple((candidate, reason) for candidate, reason in wanted if reason is not None))
