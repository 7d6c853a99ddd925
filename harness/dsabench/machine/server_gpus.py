"""Find out which GPUs of this machine a server uses."""

from __future__ import annotations

import ipaddress
import os
import socket
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from urllib.parse import urlsplit

from dsabench.machine.nvml import LIBRARY, open_nvml

VISIBLE = "CUDA_VISIBLE_DEVICES"
_HELD_MIB = 1024
"""Memory in use below this is no server: the driver and programs that only opened the device use less."""

_INSIDE = (
    *("enable_dp_attention", "enable_prefill_cp"),
    *("enable_dsa_prefill_context_parallel", "enable_nsa_prefill_context_parallel"),
)
"""Settings under which `dp_size` divides the same ranks and does not add copies of the model."""

Info = Mapping[str, object]


def gpu_range(info: Info) -> range | None:
    """The positions, among the visible GPUs, that a server uses by its /server_info.

    None if it uses no GPU, uses several machines, or does not say. sglang and the reference runtime do say.
    """
    tp, pp, dp, nodes = (_number(info, name, 1) for name in ("tp_size", "pp_size", "dp_size", "nnodes"))
    if info.get("device") != "cuda" or nodes > 1:
        return None
    ranks = tp * pp * (1 if any(map(info.get, _INSIDE)) else dp)
    first = _number(info, "base_gpu_id", 0)
    return range(first, first + ranks)


def visible_names(places: range | None, environment: Mapping[str, str]) -> tuple[str, ...]:
    """The GPUs at these positions of a process with this environment; empty if some do not exist."""
    if places is None:
        return ()
    if (visible := environment.get(VISIBLE)) is None:
        return tuple(map(str, places))
    names = [name.strip() for name in visible.split(",")]
    return tuple(names[place] for place in places) if places.stop <= len(names) else ()


def busy_gpus(count: int, environment: Mapping[str, str] = os.environ, library: str = LIBRARY) -> tuple[str, ...]:
    """The GPUs of this machine with memory in use, if there are exactly `count` of them; else none.

    Use it for a server whose visible GPUs are unknown (in a container, or started by somebody else). GPUs that
    `environment` hides from this process do not count.
    """
    nvml = open_nvml(library)
    if nvml is None or count < 1:
        return ()
    visible = environment.get(VISIBLE)
    names = nvml.names() if visible is None else [name.strip() for name in visible.split(",")]
    devices = [(name, device) for name in names if (device := nvml.device(name)) is not None]
    taken = tuple(name for name, device in devices if (device.used_mib() or 0) >= _HELD_MIB)
    return taken if len(taken) == count else ()


def pids_on(gpus: Sequence[str] | None = None, library: str = LIBRARY) -> frozenset[int]:
    """Processes that compute on these GPUs; None asks all of the machine. Empty if the driver does not tell."""
    nvml = open_nvml(library)
    if nvml is None:
        return frozenset()
    devices = filter(None, map(nvml.device, nvml.names() if gpus is None else gpus))
    return frozenset().union(*(device.pids() or () for device in devices))


@dataclass(frozen=True, slots=True)
class ForeignProcesses:
    """Tells the server's own processes on its GPUs from those of others."""

    gpus: tuple[str, ...]
    own: frozenset[int]

    @classmethod
    def of_boot(
        cls, gpus: Sequence[str], before: frozenset[int], marked: frozenset[int], library: str = LIBRARY
    ) -> ForeignProcesses:
        """Look at the GPUs when the server is ready.

        Args:
            gpus: those of the server, by number or uuid.
            before: processes that computed on the machine's GPUs before the server was started.
            marked: processes that the start of the server has begotten. If the driver counts processes otherwise, as for some containers,
                none of these is on a GPU: then everything that came since the start is taken for the server's.
            library: file of NVML.

        """
        found = pids_on(gpus, library)
        return cls(tuple(gpus), found & marked or found - before)

    def now(self, library: str = LIBRARY) -> frozenset[int] | None:
        """Processes of others on the server's GPUs; None if the driver does not show the server's own."""
        return pids_on(self.gpus, library) - self.own if self.own else None


def gpus_of_address(base_url: str, info: object, library: str = LIBRARY) -> tuple[str, ...]:
    """The GPUs of a server that somebody else started; none if it is on another machine, or does not say.

    Behind a router all prefill and decode servers must be on this machine.
    """
    if not isinstance(info, Mapping):
        return ()
    behind = [one for role in ("prefill", "decode") if isinstance(ones := info.get(role), list) for one in ones]
    places = [gpu_range(one) for one in behind or [info] if isinstance(one, Mapping)]
    return held_by(places, library) if is_here(base_url) else ()


def held_by(places: Sequence[range | None], library: str = LIBRARY) -> tuple[str, ...]:
    """The GPUs of several servers whose visible GPUs are unknown; empty if one does not say what it uses."""
    counts = [len(place) for place in places if place is not None]
    return busy_gpus(sum(counts), library=library) if len(counts) == len(places) else ()


def is_here(base_url: str) -> bool:
    """Whether the address belongs to this machine."""
    host = urlsplit(base_url).hostname or ""
    try:
        found = {one[4][0] for one in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)}
    except OSError:
        return False
    return bool(found) and all(_is_own(str(address)) for address in found)


def _is_own(address: str) -> bool:
    """Whether the address belongs to this machine: only then a socket can be bound to it."""
    known = ipaddress.ip_address(address.partition("%")[0])
    if known.is_loopback:
        return True
    family = socket.AF_INET if known.version == 4 else socket.AF_INET6
    with closing(socket.socket(family, socket.SOCK_STREAM)) as probe:
        try:
            probe.bind((address, 0))
        except OSError:
            return False
    return True


def _number(info: Info, name: str, otherwise: int) -> int:
    value = info.get(name)
    return value if isinstance(value, int) and value > 0 else otherwise
