"""Telling glibc's malloc to keep what the model frees."""

from __future__ import annotations

import ctypes

_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8  # malloc.h
_MMAP_BYTES = 32 << 20
"""The largest value that glibc takes."""
_TRIM_BYTES = 1 << 30


def keep_freed_memory() -> None:
    """Serve activations from memory that is mapped already.

    By default each forward pass gives its large blocks back to the kernel and faults them in again, until malloc has
    raised its thresholds by itself: the first seconds of a server are then half as fast as the rest. To be called
    before there are threads. Does nothing on other C libraries.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        for parameter, value in ((_MMAP_THRESHOLD, _MMAP_BYTES), (_TRIM_THRESHOLD, _TRIM_BYTES), (_ARENA_MAX, 1)):
            mallopt(parameter, value)
