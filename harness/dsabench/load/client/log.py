"""What is known of each request without looking at its bytes, in columns."""

from __future__ import annotations

from array import array
from dataclasses import dataclass


class RequestLog:
    """Filled by the dispatcher. Times are ns of `perf_counter_ns`, which all processes of a machine share; 0: not yet."""

    __slots__ = ("done_ns", "errors", "late_ns", "scheduled_ns", "sent_ns", "status")

    def __init__(self, count: int) -> None:
        self.scheduled_ns, self.sent_ns, self.done_ns, self.late_ns = (array("q", bytes(8 * count)) for _ in range(4))
        self.status = array("i", bytes(4 * count))
        self.errors: dict[int, str] = {}


@dataclass(slots=True)
class Progress:
    """Read by whoever shows it, written by the worker; an int is enough of a lock."""

    ended: int = 0
