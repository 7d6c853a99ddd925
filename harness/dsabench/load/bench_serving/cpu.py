"""What this program has used so far. Imports nothing, for it is asked before anything else is loaded."""

from __future__ import annotations

import resource


def cpu_s() -> float:
    """CPU seconds of this process since its start and of all children that ended."""
    own, ended = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return own.ru_utime + own.ru_stime + ended.ru_utime + ended.ru_stime
