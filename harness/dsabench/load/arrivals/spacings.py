"""When requests are due."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from dsabench.load.arrivals.constant import Constant
from dsabench.load.arrivals.gamma import Gamma
from dsabench.load.arrivals.immediate import Immediate
from dsabench.load.arrivals.poisson import Poisson
from dsabench.load.arrivals.protocol import Arrivals, Times
from dsabench.load.arrivals.ramp import Ramp

if TYPE_CHECKING:  # a load test from the command line has no workload, and pydantic costs 100 ms
    from dsabench.model.workload import Workload

ARRIVALS: Mapping[str, Callable[[float, Workload], Arrivals]] = {
    "constant": lambda rate_req_s, _: Constant(rate_req_s),
    "poisson": lambda rate_req_s, _: Poisson(rate_req_s),
    "gamma": lambda rate_req_s, workload: Gamma(rate_req_s, workload.burstiness or 1.0),
    "ramp": lambda rate_req_s, workload: Ramp(rate_req_s, workload.ramp_to or rate_req_s),
}
"""Name in a workload → spacing at a rate in requests per second."""


def arrivals_for(workload: Workload) -> Arrivals:
    """The spacing that the workload names; without a request rate everything is due at once."""
    if workload.request_rate is None:
        return Immediate()
    return ARRIVALS[workload.arrivals](workload.request_rate, workload)


__all__ = [
    "ARRIVALS",
    "Arrivals",
    "Constant",
    "Gamma",
    "Immediate",
    "Poisson",
    "Ramp",
    "Times",
    "arrivals_for",
]
