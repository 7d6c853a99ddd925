"""Lets a busy loop rest for a quarter of a millisecond between two looks at its sockets.

Above some thousand reads a second every read would wake the process by itself, and waking costs more than reading. A
rest makes several arrive together. It moves a stamp by at most its own length, 0.13 ms in the mean, which is what the
kernel's timers do to a server's sleep anyway; a loop that has as much to do as it can do does not rest.
"""

from __future__ import annotations

import asyncio
from time import sleep

from dsabench.load.client.spool import Spool

REST_S = 0.00025
_BUSY_READS = 64
"""In one turn of the loop; from here on reads come together by themselves."""
_BEGIN_READS, _END_READS = 40, 20
"""Per tick of 10 ms: above 4,000 reads a second it begins, below 2,000 it ends."""


class Rest:
    """Switched on and off by the pulse."""

    def __init__(self, spool: Spool) -> None:
        self._loop, self._spool = asyncio.get_running_loop(), spool
        self._on = False
        self._at_tick = self._at_turn = 0

    def tick(self) -> None:
        """Look at the last tick's reads."""
        noted = self._spool.noted
        reads, self._at_tick = noted - self._at_tick, noted
        if self._on:
            self._on = reads >= _END_READS
        elif reads >= _BEGIN_READS:
            self._on, self._at_turn = True, noted
            self._loop.call_soon(self._turn)

    def stop(self) -> None:
        """No more rests."""
        self._on = False

    def _turn(self) -> None:
        """Once in every turn of the loop while it is on; that it is queued keeps the loop from sleeping by itself."""
        if not self._on:
            return
        noted = self._spool.noted
        if noted - self._at_turn < _BUSY_READS:
            sleep(REST_S)
        self._at_turn = noted
        self._loop.call_soon(self._turn)
