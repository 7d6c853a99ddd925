"""What is looked at when something is left: a fault found then must hide no other error."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from types import TracebackType

from dsabench.errors import TrialFault


def raise_or_note(fault: TrialFault | None, under_way: BaseException | None) -> None:
    """Raise the fault; where another error is under way, add it to that one as a note."""
    if fault is None:
        return
    if under_way is None:
        raise fault
    under_way.add_note(str(fault))


@dataclass(frozen=True, slots=True)
class CheckedAfter:
    """`async with CheckedAfter(check):` asks on leaving, however it is left, what is still there.

    Leaving raises the TrialFault that `check` gives. As a note where another error is under way.
    """

    check: Callable[[], Awaitable[TrialFault | None]]

    async def __aenter__(self) -> None:
        """Nothing to begin."""

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        raise_or_note(await self.check(), error)
