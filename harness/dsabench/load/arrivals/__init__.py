"""When requests are due."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from dsabench.load.arrivals.constant import Constant
from dsabench.load.arrivals.immediate import Immediate
from dsabench.load.arrivals.poisson import Poisson
from dsabench.load.arrivals.protocol import Arrivals, Times
from dsabench.model.workload import Workload

ARRIVALS: Mapping[str, Callable[[float], Arrivals]] = {"constant": Constant, "poisson": Poisson}
"""Name in a workload → spacing at a rate in requests per second."""


def arrivals_for(workload: Workload) -> Arrivals:
    """The spacing that the workload names; without a request rate everything is due at once."""
    if workload.request_rate is None:
        return Immediate()
    return ARRIVALS[workload.arrivals](workload.request_rate)


__all__ = ["ARRIVALS", "Arrivals", "Constant", "Immediate", "Poisson", "Times", "arrivals_for"]
