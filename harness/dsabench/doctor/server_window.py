"""A server over a while: its requests, KV pool and steps at each look, whatever they were read from, and the limits that it names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any, NamedTuple

from dsabench.doctor.chat_stream import number_at, text_at

OFTEN = 0.5
"""Share of the looks."""
_RUNNING, _MICRO_BATCH = "--max-running-requests", "--pp-max-micro-batch-size"
_FULL_BATCH = 0.98
"""Share of the largest batch."""


class RankState(NamedTuple):
    """One data-parallel rank at one moment. None: it does not say."""

    running: float
    """Requests in the running batch."""
    queued: float
    kv_use: float | None = None
    """Share of the KV pool that running requests hold, 0 to 1."""
    retracted: float = 0.0
    """Requests that gave their KV back, so far."""
    in_graph: bool | None = None
    """Whether the last decode step ran as a CUDA graph."""

    @property
    def load(self) -> float:
        """Requests that the rank has."""
        return self.running + self.queued


class ServerLook(NamedTuple):
    """A server at one moment."""

    ranks: Mapping[str, RankState]
    """By the label `dp_rank`; a single one has none."""
    accept_length: float | None = None
    """Tokens of a step with drafts."""
    thread_busy: float | None = None
    """Share of the time since the look before in which the server's busiest thread ran or waited for a core; None of a server on another
    machine."""
    gpu_busy: float | None = None
    """Share of time in which the server's busiest GPU ran a kernel; None where its GPUs cannot be told."""

    @property
    def running(self) -> float:
        """Requests in all running batches."""
        return sum(rank.running for rank in self.ranks.values())

    @property
    def queued(self) -> float:
        """Requests that wait anywhere."""
        return sum(rank.queued for rank in self.ranks.values())

    @property
    def largest_batch(self) -> float:
        """Requests in the running batch of the rank that has most."""
        return max(rank.running for rank in self.ranks.values())

    @property
    def kv_use(self) -> float | None:
        """Of the rank whose KV pool is fullest."""
        return max((rank.kv_use for rank in self.ranks.values() if rank.kv_use is not None), default=None)


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """What /server_info says of the limits of a rank. None: it does not say."""

    max_running: float | None = None
    """Requests in its batch, at most."""
    batch_flag: str = _RUNNING
    """What sets that."""
    graph_batch: float | None = None
    """Largest decode batch with a CUDA graph; 0 where they are off."""
    kv_cache_dtype: str = ""
    speculates: bool = False
    chunk: float | None = None
    """New tokens of a prefill step, at most."""
    computes_on_cpu: bool = False
    """The reference runtime: that its threads are busy says nothing of what it waits for."""
    dp_ranks: int = 1
    """Data-parallel ranks."""
    role: str = ""
    """`prefill` or `decode` of a disaggregated deployment."""

    @classmethod
    def of(cls, info: Mapping[str, Any]) -> ServerSettings:
        """Read an answer of /server_info."""
        algorithm = text_at(info, "speculative_algorithm").lower()
        role = text_at(info, "disaggregation_mode").lower()
        limits = _limits_of_batch(info)
        tightest = min(limits, key=lambda flag: limits[flag], default=_RUNNING)
        return cls(
            max_running=limits.get(tightest),
            batch_flag=tightest,
            graph_batch=_graph_batch(info),
            kv_cache_dtype=text_at(info, "kv_cache_dtype"),
            speculates=algorithm not in {"", "none", "off"},
            chunk=number_at(info, "chunked_prefill_size"),
            computes_on_cpu="reference" in info,
            dp_ranks=int(number_at(info, "dp_size") or 1),
            role="" if role in {"null", "none"} else role,
        )


@dataclass(frozen=True, slots=True)
class ServerWindow:
    """Looks at a server, a second apart."""

    settings: ServerSettings
    looks: tuple[ServerLook, ...]

    @property
    def waiting(self) -> float:
        """Share of the looks in which a request waits."""
        return sum(look.queued > 0 for look in self.looks) / len(self.looks)

    @property
    def waits(self) -> bool:
        """Whether requests wait often."""
        return self.waiting >= OFTEN

    @property
    def running(self) -> float:
        """Requests in all running batches, in the middle of the looks."""
        return median(look.running for look in self.looks)

    @property
    def is_full_batch(self) -> bool:
        """Whether a rank runs as many requests as it may; False where it does not say how many."""
        most = self.settings.max_running
        return most is not None and median(look.largest_batch for look in self.looks) >= _FULL_BATCH * most

    @property
    def retracted(self) -> float:
        """Requests that gave their KV back while the server was watched."""
        first, last = self.looks[0].ranks, self.looks[-1].ranks
        return sum(max(rank.retracted - first[name].retracted, 0.0) for name, rank in last.items() if name in first)

    @property
    def kv_use(self) -> float | None:
        """As of a look, in the middle of those that tell it."""
        return _middle(look.kv_use for look in self.looks)

    @property
    def thread_busy(self) -> float | None:
        """As of a look, in the middle of those that tell it."""
        return _middle(look.thread_busy for look in self.looks)

    @property
    def gpu_busy(self) -> float | None:
        """As of a look, in the middle of those that tell it."""
        return _middle(look.gpu_busy for look in self.looks)


def _middle(values: Iterable[float | None]) -> float | None:
    told = [value for value in values if value is not None]
    return median(told) if told else None


def _limits_of_batch(info: Mapping[str, Any]) -> dict[str, float]:
    """Flag → requests of a rank in one batch, of the flags that are told. A running server changes the second one."""
    states = info.get("internal_states")
    places = [state for state in (states if isinstance(states, list) else ()) if isinstance(state, dict)]
    names = {
        _RUNNING: ("effective_max_running_requests_per_dp", "max_running_requests"),
        _MICRO_BATCH: ("pp_max_micro_batch_size", "pp_max_micro_batch_size"),
    }
    found = {}
    for flag, (now, asked) in names.items():
        told = [one for state in places if (one := number_at(state, now)) is not None]
        whole = number_at(info, asked)
        if told or whole is not None:
            found[flag] = min(told) if told else whole or 0.0
    return found


def _graph_batch(info: Mapping[str, Any]) -> float | None:
    if info.get("disable_cuda_graph") is True:
        return 0.0
    for name in ("cuda_graph_bs_decode", "cuda_graph_bs"):
        sizes = info.get(name)
        if isinstance(sizes, list) and sizes and all(isinstance(size, (int, float)) for size in sizes):
            return float(max(sizes))
    names = ("cuda_graph_max_bs_decode", "cuda_graph_max_bs")
    return next((found for name in names if (found := number_at(info, name)) is not None), None)
