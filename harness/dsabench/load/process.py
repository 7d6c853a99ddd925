"""What this process may hold open, and what its garbage collector looks at, while it sends many requests."""

from __future__ import annotations

import gc
import resource
from collections.abc import Iterator
from contextlib import contextmanager

_SPARE_DESCRIPTORS = 256


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
