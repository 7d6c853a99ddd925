"""A process that looks at the machine a few times a second, and writes each look into a file that its parent reads later.

It is no thread of the load generator: beside one, every read of a socket takes locks. It ends when its standard input
does, so nothing outlives the process that started it, however that one ended.
"""

from __future__ import annotations

import json
import os
import select
import signal
from time import perf_counter

from dsabench.probes.machine import Machine

EVERY_S = 0.2
COST_MAX = 0.05
"""Share of a core: where a look takes long (many GPUs, a slow driver), the next one waits accordingly."""
_NICENESS = 10
"""It gives way to whatever it shares a core with; a look that is late carries its own time."""


def main(fd: int, orders: str) -> None:
    """Run until standard input ends. The first look is told on standard output, the last is taken at the end.

    `fd` is the file, `orders` are the arguments of `Machine` as JSON.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a Ctrl-C reaches the whole group; the parent closes our input
    os.nice(_NICENESS)
    machine = Machine(**json.loads(orders))
    cost_s = _note(machine, fd)
    os.write(1, b"R")
    while not select.select([0], [], [], max(EVERY_S - cost_s, cost_s / COST_MAX))[0]:
        cost_s = _note(machine, fd)
    _note(machine, fd)


def _note(machine: Machine, fd: int) -> float:
    """Write one look, and return the seconds that it took."""
    begun_s = perf_counter()
    os.write(fd, machine.look().tobytes())
    return perf_counter() - begun_s
