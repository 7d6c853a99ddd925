"""What a running server shows of itself over a while: /metrics and /server_info, its processes and GPUs where they are here."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from statistics import median
from time import perf_counter
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import psutil
from prometheus_client.parser import text_string_to_metric_families

from dsabench.doctor.ask import ServerProbe
from dsabench.doctor.chat_stream import number_at, text_at
from dsabench.doctor.server import read_info
from dsabench.machine.checks import Finding, problem
from dsabench.machine.cpu_use import wanted_core_s
from dsabench.machine.nvml import open_nvml
from dsabench.machine.server_gpus import gpus_of_address, is_here

_PREFIX = "sglang:"
_EVERY_S = 1.0
OFTEN = 0.5
"""Share of the looks."""
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
    graph_batch: float | None = None
    """Largest decode batch with a CUDA graph; 0 where they are off."""
    kv_cache_dtype: str = ""
    speculates: bool = False
    chunk: float | None = None
    """New tokens of a prefill step, at most."""
    computes_on_cpu: bool = False
    """The reference runtime: that its threads are busy says nothing of what it waits for."""
    role: str = ""
    """`prefill` or `decode` of a disaggregated deployment."""

    @classmethod
    def of(cls, info: Mapping[str, Any]) -> ServerSettings:
        """Read an answer of /server_info."""
        algorithm = text_at(info, "speculative_algorithm").lower()
        role = text_at(info, "disaggregation_mode").lower()
        return cls(
            max_running=_max_running(info),
            graph_batch=_graph_batch(info),
            kv_cache_dtype=text_at(info, "kv_cache_dtype"),
            speculates=algorithm not in {"", "none", "off"},
            chunk=number_at(info, "chunked_prefill_size"),
            computes_on_cpu="reference" in info,
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


def _max_running(info: Mapping[str, Any]) -> float | None:
    states = info.get("internal_states")
    told = [
        number_at(state, "effective_max_running_requests_per_dp")
        for state in (states if isinstance(states, list) else ())
        if isinstance(state, dict)
    ]
    numbers = [one for one in told if one is not None]
    return min(numbers) if numbers else number_at(info, "max_running_requests")


def _graph_batch(info: Mapping[str, Any]) -> float | None:
    if info.get("disable_cuda_graph") is True:
        return 0.0
    for name in ("cuda_graph_bs_decode", "cuda_graph_bs"):
        sizes = info.get(name)
        if isinstance(sizes, list) and sizes and all(isinstance(size, (int, float)) for size in sizes):
            return float(max(sizes))
    names = ("cuda_graph_max_bs_decode", "cuda_graph_max_bs")
    return next((found for name in names if (found := number_at(info, name)) is not None), None)


def read_look(text: str) -> ServerLook:
    """Read an answer of /metrics.

    Raises:
        ValueError: it is no Prometheus text, or says nothing of requests.

    """
    found: dict[str, dict[str, float]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name.startswith(_PREFIX) and math.isfinite(sample.value):
                of_rank = found.setdefault(sample.labels.get("dp_rank", ""), {})
                name = sample.name.removeprefix(_PREFIX).removesuffix("_total")
                # Each rank of a tensor-parallel group says the same, or nothing.
                of_rank[name] = max(sample.value, of_rank.get(name, -math.inf))
    ranks = {
        rank: RankState(
            values["num_running_reqs"],
            values.get("num_queue_reqs", 0.0),
            values.get("token_usage"),
            values.get("num_retracted_requests", 0.0),
            None if (graph := values.get("is_cuda_graph")) is None else graph > 0,
        )
        for rank, values in found.items()
        if "num_running_reqs" in values
    }
    if not ranks:
        raise ValueError("it says nothing of requests")
    accepted = [value for values in found.values() if (value := values.get("spec_accept_length", 0.0)) > 0]
    return ServerLook(ranks, sum(accepted) / len(accepted) if accepted else None)


async def watch(asker: ServerProbe, seconds: float) -> ServerWindow | Finding:
    """Look at a server once a second, and send its model no request; the problem where it does not answer or shows no metrics."""
    info = await read_info(asker)
    if isinstance(info, Finding):
        return info
    host, looks = _ServerProcesses(asker.base_url, info), list[ServerLook]()
    end_s = perf_counter() + seconds
    while True:
        began_s = perf_counter()
        look = await _look(asker)
        if isinstance(look, Finding):
            return look
        looks.append(look._replace(thread_busy=host.thread_busy(), gpu_busy=host.gpu_busy()))
        asker.tell(f"what limits it, {max(end_s - perf_counter(), 0.0):.0f} s left")
        if began_s + _EVERY_S > end_s:
            return ServerWindow(ServerSettings.of(info), tuple(looks))
        await asyncio.sleep(max(began_s + _EVERY_S - perf_counter(), 0.0))


async def _look(asker: ServerProbe) -> ServerLook | Finding:
    text, error = await asker.read("/metrics")
    if text is None:
        return problem("metrics", error, "add --enable-metrics to the server's command")
    try:
        return read_look(text)
    except ValueError as trouble:
        return problem("metrics", f"/metrics is no server's of SGLang: {trouble}", f"curl {asker.base_url}/metrics")


class _ServerProcesses:
    """The processes of a server on this machine, and its GPUs."""

    def __init__(self, base_url: str, info: Mapping[str, Any]) -> None:
        parts = urlsplit(base_url)
        port = parts.port or (443 if parts.scheme == "https" else 80)
        self._root = _listening(port) if is_here(base_url) else None
        self._wanted_s: dict[tuple[int, int], float] = {}
        self._at_s = 0.0
        names, nvml = gpus_of_address(base_url, info), open_nvml()
        self._gpus = [] if nvml is None else [one for name in names if (one := nvml.device(name)) is not None]

    def thread_busy(self) -> float | None:
        """Of the busiest thread since the last call; None at the first, and without processes to see."""
        before, before_s = self._wanted_s, self._at_s
        self._at_s, self._wanted_s = perf_counter(), {}
        for process in [] if self._root is None else _family(self._root):
            for thread, seconds in wanted_core_s(process.pid).items():
                self._wanted_s[process.pid, thread] = seconds
        passed_s = self._at_s - before_s
        grown = (seconds - before[thread] for thread, seconds in self._wanted_s.items() if thread in before)
        return max((one / passed_s for one in grown), default=None)

    def gpu_busy(self) -> float | None:
        """The busiest GPU's share of time with a kernel."""
        shares = [share for gpu in self._gpus if (share := gpu.busy_share()) is not None]
        return max(shares, default=None)


def _listening(port: int) -> psutil.Process | None:
    """The process that listens on a port, as far as this user may see it."""
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            for socket in process.net_connections(kind="tcp"):
                if socket.status == psutil.CONN_LISTEN and socket.laddr.port == port:
                    return process
    return None


def _family(root: psutil.Process) -> Sequence[psutil.Process]:
    with suppress(psutil.Error):
        return [root, *root.children(recursive=True)]
    return []
