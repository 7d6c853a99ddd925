"""What this process may hold open, and what its garbage collector looks at, while it sends many requests."""

from __future__ import annotations

import gc
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dsabench.errors import InputError

_SPARE_DESCRIPTORS = 256
_PORT_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")


@contextmanager
def no_full_collections() -> Iterator[None]:
    """Keep what exists now out of the garbage collector, whose full passes over it (0.1 s) would show up as lag.

    It is on inside, whatever it was before.
    """
    was_on = gc.isenabled()
    gc.freeze()
    gc.enable()
    try:
        yield
    finally:
        gc.unfreeze()
        if not was_on:
            gc.disable()


def allow_open_files(count: int) -> None:
    """Raise the soft limit of open files to `count` and some, as far as the hard limit allows; never lower it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = count + _SPARE_DESCRIPTORS
    if soft != resource.RLIM_INFINITY and soft < wanted:
        most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def refuse_more_connections(count: int, workers: int) -> None:
    """Refuse a load that this machine cannot have open at a time; call it after `allow_open_files`.

    Raises:
        InputError: too few open files for one of the workers, or too few ports for all of them.

    """
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = -(-count // workers) + _SPARE_DESCRIPTORS
    if soft != resource.RLIM_INFINITY and soft < needed:
        raise InputError(
            f"{count:,} requests at a time need {needed:,} open files in each of {workers} client processes, and one may have "
            f"{soft:,}: raise the limit (ulimit -Hn), take more workers, or lower max_concurrency"
        )
    ports = _ports()
    if ports is not None and count > ports:
        raise InputError(
            f"{count:,} requests at a time to one address need as many ports, and this machine has {ports:,} "
            "(net.ipv4.ip_local_port_range): widen the range, or lower max_concurrency"
        )


def _ports() -> int | None:
    try:
        low, high = _PORT_RANGE.read_text().split()
    except (OSError, ValueError):
        return None
    return int(high) - int(low) + 1
