"""What one worker is to do: its part of a plan, and where it takes its next session from."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dsabench.load.client.address import Address
from dsabench.load.plan import ClosedLoop, OpenLoop, Plan, Timeouts

Take = Callable[[], int | None]
"""The number of the next session to begin; None when all are taken."""

_TICKET = struct.Struct("<I")


@dataclass(frozen=True, slots=True)
class Schedule:
    """Any pacing in one form: sessions of requests, begun in order, `slots` of them open at a time."""

    sessions: Sequence[Sequence[int]]
    due_s: Sequence[float] | None
    """When each session may begin, seconds after the start; None: as soon as a slot is free."""
    think_s: Sequence[float] | None
    slots: int | None
    """None: no limit."""

    @classmethod
    def of(cls, plan: Plan) -> Schedule:
        """Closed loops, open loops and sessions differ in what is None."""
        single = [(index,) for index in range(len(plan.bodies))]
        match plan.pacing:
            case ClosedLoop(slots):
                return cls(single, None, None, slots)
            case OpenLoop(due_s, limit):
                return cls(single, due_s, None, limit)
            case sessions:
                return cls(sessions.turns, sessions.due_s, sessions.think_s, sessions.limit)

    @property
    def most_open(self) -> int:
        """Sessions that may be open at a time."""
        return len(self.sessions) if self.slots is None else min(self.slots, len(self.sessions))

    @property
    def open_at_start(self) -> int:
        """Connections that are wanted at once: those of the first tenth of a second, or of every slot."""
        if self.due_s is None or self.slots is not None:
            return self.most_open
        return min(len(self.sessions), max(16, sum(due_s < 0.1 for due_s in self.due_s)))


@dataclass(frozen=True, slots=True)
class Share:
    """One worker's part."""

    address: Address
    timeouts: Timeouts
    schedule: Schedule
    requests: Sequence[bytes | memoryview]
    """Of all requests, head and body."""
    slots: int | None
    """This worker's; those of all workers add up to the schedule's."""
    connections: int
    """To open before the clock starts."""
    take: Take


def own_tickets(count: int, worker: int, workers: int) -> Take:
    """Every `workers`-th session, for one worker alone or where no slots are shared."""
    numbers = iter(range(worker, count, workers))
    return lambda: next(numbers, None)


def ticket_file(fd: int, count: int) -> None:
    """Write the sessions' numbers to a file that workers share, for `shared_tickets`."""
    data = b"".join(map(_TICKET.pack, range(count)))
    os.write(fd, data)
    os.lseek(fd, 0, os.SEEK_SET)


def shared_tickets(fd: int) -> Take:
    """Take from a file whose offset all workers share.

    The kernel holds a lock on the offset of a shared open file during a read (FMODE_ATOMIC_POS), so every number is
    given out once and in order.
    """

    def take() -> int | None:
        data = os.read(fd, _TICKET.size)
        return _TICKET.unpack(data)[0] if data else None

    return take


def portions(total: int, parts: int) -> list[int]:
    """Nearly equal whole parts."""
    return [total // parts + (part < total % parts) for part in range(parts)]
