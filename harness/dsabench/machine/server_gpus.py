"""Which GPUs of this machine a server computes on."""

from __future__ import annotations

import ipaddress
import os
import socket
from collections.abc import Mapping, Sequence
from contextlib import closing
from urllib.parse import urlsplit

from dsabench.machine.nvml import LIBRARY, open_nvml

VISIBLE = "CUDA_VISIBLE_DEVICES"
_HELD_MIB = 1024
"""Less is in use where no server is: by the driver itself, and by programs that only opened the device."""

_INSIDE = (
    *("enable_dp_attention", "enable_prefill_cp"),
    *("enable_dsa_prefill_context_parallel", "enable_nsa_prefill_context_parallel"),
)
"""Settings under which the `dp_size` groups are of the same ranks, and no copies of the model beside each other."""

Info = Mapping[str, object]


def gpu_range(info: Info) -> range | None:
    """Which of the GPUs visible to it a server takes, by its /server_info.

    None where it takes none, some on other machines too, or does not say: sglang and the reference runtime do.
    """
    tp, pp, dp, nodes = (_number(info, name, 1) for name in ("tp_size", "pp_size", "dp_size", "nnodes"))
    if info.get("device") != "cuda" or nodes > 1:
        return None
    ranks = tp * pp * (1 if any(map(info.get, _INSIDE)) else dp)
    first = _number(info, "base_gpu_id", 0)
    return range(first, first + ranks)


def visible_names(places: range | None, environment: Mapping[str, str]) -> tuple[str, ...]:
    """The GPUs at these places of what the environment lets a process see; empty where they are not all there."""
    if places is None:
        return ()
    if (visible := environment.get(VISIBLE)) is None:
        return tuple(map(str, places))
    names = [name.strip() for name in visible.split(",")]
    return tuple(names[place] for place in places) if places.stop <= len(names) else ()


def busy_gpus(count: int, environment: Mapping[str, str] = os.environ, library: str = LIBRARY) -> tuple[str, ...]:
    """The GPUs of this machine on which somebody holds memory, where they are as many as that.

    For a server of which nobody knows what it sees (a container, one that somebody else started). With more or fewer they
    are not surely its: then none. What `environment` hides from this process does not count.
    """
    nvml = open_nvml(library)
    if nvml is None or count < 1:
        return ()
    visible = environment.get(VISIBLE)
    names = nvml.names() if visible is None else [name.strip() for name in visible.split(",")]
    devices = [(name, device) for name in names if (device := nvml.device(name)) is not None]
    taken = tuple(name for name, device in devices if (device.used_mib() or 0) >= _HELD_MIB)
    return taken if len(taken) == count else ()


def gpus_of_address(base_url: str, info: object, library: str = LIBRARY) -> tuple[str, ...]:
    """Those of a server that somebody else started; none where its address is another machine's, or it does not tell.

    Behind a router all prefill and decode servers are told, and have to be here.
    """
    if not isinstance(info, Mapping):
        return ()
    behind = [one for role in ("prefill", "decode") if isinstance(ones := info.get(role), list) for one in ones]
    places = [gpu_range(one) for one in behind or [info] if isinstance(one, Mapping)]
    return held_by(places, library) if is_here(base_url) else ()


def held_by(places: Sequence[range | None], library: str = LIBRARY) -> tuple[str, ...]:
    """Those of several servers of which nobody knows what they see; empty where one does not say what it takes."""
    counts = [len(place) for place in places if place is not None]
    return busy_gpus(sum(counts), library=library) if len(counts) == len(places) else ()


def is_here(base_url: str) -> bool:
    """Whether the address is one of this machine's own."""
    host = urlsplit(base_url).hostname or ""
    try:
        found = {one[4][0] for one in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)}
    except OSError:
        return False
    return bool(found) and all(_is_own(str(address)) for address in found)


def _is_own(address: str) -> bool:
    """Only an own address can be bound to."""
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
