"""When requests are due: constant, Poisson, gamma, ramp, all at once, or recorded times."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol, Self

import numpy as np
import numpy.typing as npt

from dsabench.load.plan import ClosedLoop, OpenLoop, Pacing, SessionPacing
from dsabench.model.sample import Prompt

if TYPE_CHECKING:
    from dsabench.load.draw.prompts import DrawnPrompts
    from dsabench.model.workload import Workload

Times = npt.NDArray[np.float64]


class Arrivals(Protocol):
    """A spacing of requests in time."""

    def times_s(self, count: int, rng: np.random.Generator) -> Times:
        """Seconds after the start at which `count` requests are due: ascending, the first at 0.0."""


@dataclass(frozen=True, slots=True)
class ConstantRate:
    """One request every 1 / rate seconds."""

    rate_req_s: float

    def times_s(self, count: int, rng: np.random.Generator) -> Times:
        """0, 1/rate, 2/rate, …; nothing is drawn."""
        del rng
        return np.arange(count, dtype=np.float64) / self.rate_req_s


@dataclass(frozen=True, slots=True)
class PoissonArrivals:
    """A Poisson process: exponential distances of mean 1 / rate, drawn after each request as in bench_serving."""

    rate_req_s: float

    def times_s(self, count: int, rng: np.random.Generator) -> Times:
        """Partial sums of `count - 1` exponential distances."""
        times = np.zeros(count, dtype=np.float64)
        np.cumsum(rng.exponential(1.0 / self.rate_req_s, size=max(count - 1, 0)), out=times[1:])
        return times


@dataclass(frozen=True, slots=True)
class GammaArrivals:
    """Gamma distributed distances of mean 1 / rate; their coefficient of variation is 1 / sqrt(burstiness).

    The parameter is that of vllm's serving benchmark: 1 is a Poisson process, below it bursts, above it more even.
    """

    rate_req_s: float
    burstiness: float = 1.0

    def times_s(self, count: int, rng: np.random.Generator) -> Times:
        """Partial sums of `count - 1` distances."""
        times = np.zeros(count, dtype=np.float64)
        scale_s = 1.0 / (self.rate_req_s * self.burstiness)
        np.cumsum(rng.gamma(self.burstiness, scale_s, size=max(count - 1, 0)), out=times[1:])
        return times


@dataclass(frozen=True, slots=True)
class RampArrivals:
    """The rate goes evenly from one value to another over the run; distances follow it without chance."""

    from_req_s: float
    to_req_s: float

    def times_s(self, count: int, rng: np.random.Generator) -> Times:
        """The k-th request comes when the integral of the rate reaches k; nothing is drawn.

        With rate r0 + a·t, k = r0·t + a·t²/2, whose root is written so that it also holds for a = 0.
        """
        del rng
        k = np.arange(count, dtype=np.float64)
        length_s = 2.0 * max(count - 1, 1) / (self.from_req_s + self.to_req_s)
        slope = (self.to_req_s - self.from_req_s) / length_s
        return 2.0 * k / (self.from_req_s + np.sqrt(np.maximum(self.from_req_s**2 + 2.0 * slope * k, 0.0)))


@dataclass(frozen=True, slots=True)
class AllAtOnce:
    """An infinite rate: all requests are due at the start."""

    def times_s(self, count: int, rng: np.random.Generator) -> Times:
        """Zeros; nothing is drawn."""
        del rng
        return np.zeros(count, dtype=np.float64)


ARRIVALS: Mapping[str, Callable[[float, Workload], Arrivals]] = {
    "constant": lambda rate_req_s, _: ConstantRate(rate_req_s),
    "poisson": lambda rate_req_s, _: PoissonArrivals(rate_req_s),
    "gamma": lambda rate_req_s, workload: GammaArrivals(rate_req_s, workload.burstiness or 1.0),
    "ramp": lambda rate_req_s, workload: RampArrivals(rate_req_s, workload.ramp_to or rate_req_s),
}
"""Name in a workload → spacing at a rate in requests per second."""


def arrivals_for(workload: Workload) -> Arrivals:
    """The spacing that the workload names; without a request rate everything is due at once."""
    if workload.request_rate is None:
        return AllAtOnce()
    return ARRIVALS[workload.arrivals](workload.request_rate, workload)


def pacing_for(workload: Workload, drawn: DrawnPrompts) -> Pacing:
    """By the clock where a rate or the data say when."""
    by_clock = workload.request_rate is not None or is_timed(drawn.measured)
    return pacing_of(drawn.measured, drawn.due_s.tolist() if by_clock else None, workload.max_concurrency)


def pacing_of(prompts: Sequence[Prompt], due_s: Sequence[float] | None, limit: int | None) -> Pacing:
    """Turn after turn where there are sessions; by the clock where `due_s` says when; else as fast as slots allow.

    `limit` counts requests, or sessions; None sets none.
    """
    if (turns := sessions_of(prompts)) is not None:
        starts_s = None if due_s is None else [due_s[places[0]] for places in turns]
        return SessionPacing(turns, [prompt.pause_s for prompt in prompts], starts_s, limit)
    return ClosedLoop(limit or len(prompts)) if due_s is None else OpenLoop(due_s, limit)


def is_timed(prompts: Sequence[Prompt]) -> bool:
    """Whether the data say when requests are sent."""
    return any(prompt.due_s is not None for prompt in prompts)


def are_chats(prompts: Sequence[Prompt]) -> bool:
    """Whether later turns repeat what the server answered to earlier ones."""
    return any(prompt.continues for prompt in prompts)


class ArrivalSchedule(NamedTuple):
    """When requests are due, seconds after the start, and until when the generator of requests is busy."""

    due_s: Times
    end_s: float
    """bench_serving draws a gap after each request, the last one too, and its clock runs until that is over."""

    @classmethod
    def of(cls, due_s: Times) -> Self:
        """Whose generator is done with the last request."""
        return cls(due_s, float(due_s[-1]))


def exact_arrivals(
    count: int, rate_req_s: float, legacy: np.random.RandomState, *, burstiness: float = 1.0
) -> ArrivalSchedule:
    """Exponential gaps of mean 1 / rate from the state that the dataset left behind; none at an infinite rate.

    `burstiness` other than 1, which bench_serving does not have, makes them gamma distributed with that shape and the
    same mean (as vllm's benchmark does).
    """
    if math.isinf(rate_req_s):
        return ArrivalSchedule(np.zeros(count, np.float64), 0.0)
    if burstiness == 1.0:
        gaps_s = legacy.exponential(1.0 / rate_req_s, size=count)
    else:
        gaps_s = legacy.gamma(burstiness, 1.0 / (rate_req_s * burstiness), size=count)
    ends_s = np.cumsum(gaps_s)
    return ArrivalSchedule(np.concatenate(([0.0], ends_s[:-1])), float(ends_s[-1]))


def sessions_of(prompts: Sequence[Prompt]) -> tuple[tuple[int, ...], ...] | None:
    """Places of the prompts of each session, in the order in which sessions begin; None where none has two."""
    found: dict[str, list[int]] = {}
    for place, prompt in enumerate(prompts):
        found.setdefault(f"#{place}" if prompt.session is None else prompt.session, []).append(place)
    return tuple(map(tuple, found.values())) if len(found) < len(prompts) else None


def conversation_of(prompts: Sequence[Prompt]) -> npt.NDArray[np.int64]:
    """[prompts]: the number of each one's conversation; a later turn of one belongs to that of the prompt before it."""
    return np.cumsum([not prompt.continues for prompt in prompts]) - 1


def recorded_arrivals(prompts: Sequence[Prompt]) -> ArrivalSchedule:
    """When the trace sends them (datasets/mooncake.py, get_mooncake_request_over_time)."""
    return ArrivalSchedule.of(np.array([prompt.due_s or 0.0 for prompt in prompts], np.float64))
