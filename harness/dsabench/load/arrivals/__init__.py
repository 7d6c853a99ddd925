"""When requests are due."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from dsabench.load.arrivals.constant import Constant
from dsabench.load.arrivals.immediate import Immediate
from dsabench.load.arrivals.poisson import Poisson
from dsabench.load.arrivals.protocol import Arrivals, Times

if TYPE_CHECKING:  # a load test from the command line has no workload, and pydantic costs 100 ms
    from dsabench.model.workload import Workload

ARRIVALS: Mapping[str, Callable[[float], Arrivals]] = {"constant": Constant, "poisson": Poisson}
"""Name in a workload → spacing at a rate in requests per second."""


def arrivals_for(workload: Workload) -> Arrivals:
    """The spacing that the workload names; without a request rate everything is due at once."""
    if workload.request_rate is None:
        return Immediate()
    return ARRIVALS[workload.arrivals](workload.request_rate)


__all__ = ["ARRIVALS", "Arrivals", "Constant", "Immediate", "Poisson", "Times", "arrivals_for"]
