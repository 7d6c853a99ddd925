"""What a candidate is: an adapter around one implementation of one operator, and where it runs."""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch

from dsakernels.operator import Dtype, Operator
from dsakernels.shape import OperatorShape

_IMPORT_FAULTS = (
    ImportError,
    OSError,
    RuntimeError,
    AttributeError,
    TypeError,
    ValueError,
    LookupError,
    AssertionError,
)
"""What a large package raises on import where another that it patches is of the wrong version."""
Call = Callable[[], torch.Tensor]
"""What is timed: everything that the runtime does around the kernel in each layer, and the kernel."""


@dataclass(frozen=True, slots=True)
class RestoringCall:
    """A call that changes what it decides by, such as an LRU order, so that a second one would have other work to do.

    `renew` puts that back in front of each `run`; only `run` is timed.
    """

    run: Call
    renew: Callable[[], None]

    def __call__(self) -> torch.Tensor:
        """Both."""
        self.renew()
        return self.run()


@dataclass(frozen=True, slots=True)
class RequiredPackage:
    """A package that holds the kernel. Versions are compared by their leading numbers: since ≤ version < before."""

    module: str
    distributions: tuple[str, ...]
    """Names under which it was published, the newest first."""
    since: str
    before: str | None = None


@dataclass(frozen=True, slots=True)
class KernelDevice:
    """Where candidates are asked to run: `arch` is `cpu`, `sm90`, `sm100`, `gfx942` and so on."""

    kind: Literal["cpu", "cuda"]
    arch: str


@dataclass(frozen=True, slots=True)
class KernelCandidate:
    """One implementation of one operator.

    `bind(inputs)` prepares what the runtime prepares once a step (scheduler metadata, page tables) and gives the call
    that is timed. Packages are imported when it is first bound or probed, never before.
    """

    name: str
    operator: str
    does: str
    dtypes: tuple[Dtype, ...]
    bind: Callable[[Any], Call]
    archs: tuple[str, ...] | None = None
    """None: any."""
    gpu: bool = False
    """Whether it needs one, of whatever make."""
    package: RequiredPackage | None = None
    limit: Callable[[OperatorShape], str | None] = lambda _shape: None
    """Why it does not take a shape, None where it does."""
    captures: bool = True
    """False where the call waits for the GPU inside, so that no CUDA graph can hold it."""
    rounds: Callable[[Any], Any] | None = None
    """Where it rounds inputs by design (fp8 queries): the inputs with these roundings. Its verdict is against the
    reference over them, so that what it computes is seen apart from what it was given; the error against the exact
    reference is told beside it and decides nothing: it has no bound."""
    tolerance: float | None = None
    """Where its arithmetic rounds more than the operator's tolerance allows for, by design; its docstring says why."""

    def tolerance_of(self, operator: Operator, dtype: Dtype) -> float:
        """Largest relative error of a row that is right."""
        return operator.tolerance[dtype] if self.tolerance is None else self.tolerance


def only_topk_2048(shape: OperatorShape) -> str | None:
    """The limit of kernels that are written for DeepSeek-V3.2's selection."""
    return None if shape.dimensions.index_topk == 2048 else "only index_topk 2048"


def why_not_here(candidate: KernelCandidate, device: KernelDevice) -> str | None:
    """Why a candidate cannot run here, None where it can. Imports its package."""
    if candidate.archs is not None and device.arch not in candidate.archs:
        return f"runs on {', '.join(candidate.archs)}, this is {device.arch}"
    if candidate.gpu and device.kind == "cpu":
        return "needs a GPU"
    if candidate.package is None:
        return None
    return _why_package_not_here(candidate.package)


def _why_package_not_here(package: RequiredPackage) -> str | None:
    names = " or ".join(package.distributions)
    version = next(filter(None, map(_version, package.distributions)), None)
    if version is None:
        return f"{names} is not installed"
    wanted = f"needs {package.since} or newer" + (f", older than {package.before}" if package.before else "")
    too_old = _numbers(version) < _numbers(package.since)
    if too_old or (package.before is not None and _numbers(version) >= _numbers(package.before)):
        return f"{names} {version}: {wanted}"
    try:
        importlib.import_module(package.module)
    except _IMPORT_FAULTS as error:
        first = str(error).splitlines()[:1]
        return f"{names} {version} does not import: {''.join(first) or type(error).__name__}"
    return None


def _version(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def _numbers(version: str) -> tuple[int, ...]:
    match = re.match(r"\d+(\.\d+)*", version)
    return tuple(int(part) for part in match[0].split(".")) if match else ()
