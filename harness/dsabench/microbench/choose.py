"""Which operators, shapes, dtypes and candidates a request means."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase

import torch

from dsabench.microbench.request import Request
from dsakernels.candidates import CANDIDATES
from dsakernels.candidates.candidate import Candidate, Device
from dsakernels.operator import Operator
from dsakernels.operators import OPERATORS
from dsakernels.shape import Shape, parse

_CHECKED = 4
_CHECKED_KV = 1 << 15


class UnknownNameError(ValueError):
    """A name that fits nothing; the message lists what there is."""


def device_of(request: Request) -> Device:
    """The device asked for; `auto` is a GPU where torch sees one.

    Raises:
        UnknownNameError: a GPU is asked for and there is none.

    """
    has_gpu = torch.cuda.is_available()
    if request.device == "cuda" and not has_gpu:
        raise UnknownNameError("--device cuda: torch sees no GPU")
    if request.device == "cpu" or not has_gpu:
        return Device("cpu", "cpu")
    properties = torch.cuda.get_device_properties()
    gcn = getattr(properties, "gcnArchName", "").partition(":")[0] if torch.version.hip else ""
    return Device("cuda", gcn or f"sm{properties.major}{properties.minor}")


def operators(request: Request) -> tuple[Operator, ...]:
    """In the order of the pipeline."""
    names = _fitting("operator", request.operators, OPERATORS)
    return tuple(OPERATORS[name] for name in names)


def candidates(request: Request, operator: Operator) -> tuple[Candidate, ...]:
    """Of one operator."""
    _fitting("candidate", request.candidates, {candidate.name for candidate in CANDIDATES})
    return tuple(
        candidate
        for candidate in CANDIDATES
        if candidate.operator == operator.name and _fits(candidate.name, request.candidates)
    )


def shapes(request: Request, operator: Operator, device: Device) -> tuple[Shape, ...]:
    """Unless told: the small ones on a CPU, the grid on a GPU; to check on a GPU, four of the grid.

    Raises:
        UnknownNameError: a pattern that fits no shape of the operator, and is no id of a shape.

    """
    wanted = request.shapes or ("small" if device.kind == "cpu" else "grid",)
    every = {shape.id: shape for shape in (*operator.small, *operator.grid(), *_study(operator))}
    chosen = dict.fromkeys(shape for word in wanted for shape in _named(word, operator, every))
    if request.action == "check" and not request.shapes and device.kind == "cuda":
        short = [shape for shape in chosen if shape.total_kv <= _CHECKED_KV]
        return tuple(short[:: max(1, len(short) // _CHECKED)][:_CHECKED])
    return tuple(chosen)


def _study(operator: Operator) -> tuple[Shape, ...]:
    return (operator.study or operator.grid)()


def _named(word: str, operator: Operator, every: dict[str, Shape]) -> Iterator[Shape]:
    if word == "small":
        yield from operator.small
    elif word == "grid":
        yield from operator.grid()
    elif word == "study":
        yield from _study(operator)
    elif any(mark in word for mark in "*?["):
        yield from (shape for name, shape in every.items() if fnmatchcase(name, word))
    else:
        try:
            yield every.get(word) or parse(word)
        except ValueError as error:
            raise UnknownNameError(f"--shapes {error}, nor a pattern, small, grid or study") from None


def _fitting(what: str, patterns: tuple[str, ...], names: Iterable[str]) -> list[str]:
    known = list(names)
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in known):
            raise UnknownNameError(f"no {what} {pattern!r}: one of {', '.join(sorted(known))}")
    return [name for name in known if _fits(name, patterns)]


def _fits(name: str, patterns: tuple[str, ...]) -> bool:
    return not patterns or any(fnmatchcase(name, pattern) for pattern in patterns)
