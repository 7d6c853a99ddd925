"""What others took of the CPU while we measured, in words, and whether a record's warnings say so. Imports nothing."""

from __future__ import annotations

from collections.abc import Iterable

_OTHERS, _HYPERVISOR = "other processes used", "the hypervisor took"
OTHERS_WARN = 0.1
"""From here on the numbers are worth a warning: a tenth of the cores' time went elsewhere."""
STEAL_WARN = 0.05
"""Share of the time in which a core was wanted: what the CPU does takes a twentieth longer, and by how much changes from run
to run. Of the cores' whole time it would hide where most of them idle, as beside a GPU."""
STOLEN_CORES_MIN = 0.05
"""As a number of cores: the one thread that everything waits for lost no more than this of its time to the hypervisor, and
where it is less, the share above is one of very little."""


def warn_of_others(share: float) -> str | None:
    """One line where other processes used enough of the measured cores to matter."""
    if share < OTHERS_WARN:
        return None
    return f"{_OTHERS} {share:.0%} of the measured cores: expect wide intervals, or measure again when idle"


def warn_of_steal(of_wanted: float, cores: float) -> str | None:
    """One line where the hypervisor took enough to matter."""
    if of_wanted < STEAL_WARN or cores < STOLEN_CORES_MIN:
        return None
    return (
        f"{_HYPERVISOR} {of_wanted:.0%} of the CPU time that was wanted ({cores:.2f} cores): other machines share these cores; "
        "expect wide intervals, and measure on cores of your own"
    )


def is_disturbed(warnings: Iterable[str]) -> bool:
    """Whether a record's warnings say that its measurement was not alone on its cores."""
    return any(warning.startswith((_OTHERS, _HYPERVISOR)) for warning in warnings)
