"""Several workers, each a process with a loop of its own, on one clock (CLOCK_MONOTONIC is the machine's)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from dsabench.load.client.address import Address
from dsabench.load.client.share import Schedule
from dsabench.load.client.worker import Done
from dsabench.load.plan import Timeouts

if TYPE_CHECKING:
    from dsabench.load.recording import Reel


async def run_processes(
    address: Address, timeouts: Timeouts, schedule: Schedule, requests: Sequence[bytes],
    reels: Sequence[Reel], on_progress: Callable[[int, int], None],
) -> tuple[int, list[Done]]:
    raise NotImplementedError
