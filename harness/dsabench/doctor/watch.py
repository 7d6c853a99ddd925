"""What a running server shows of itself over a while: /metrics and /server_info, its processes and GPUs where they are here."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from time import perf_counter
from typing import Any
from urllib.parse import urlsplit

import psutil
from prometheus_client.parser import text_string_to_metric_families

from dsabench.doctor.ask import ServerProbe
from dsabench.doctor.server import read_info
from dsabench.doctor.server_window import RankState, ServerLook, ServerSettings, ServerWindow
from dsabench.machine.checks import Finding, problem
from dsabench.machine.cpu_use import busiest_thread_s, wanted_by_threads
from dsabench.machine.nvml import open_nvml
from dsabench.machine.server_gpus import gpus_of_address, is_here

_PREFIX = "sglang:"
_EVERY_S = 1.0


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
        processes = [] if self._root is None else _family(self._root)
        self._at_s, self._wanted_s = perf_counter(), wanted_by_threads(one.pid for one in processes)
        busiest_s = busiest_thread_s(before, self._wanted_s)
        return None if busiest_s is None else busiest_s / (self._at_s - before_s)

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
