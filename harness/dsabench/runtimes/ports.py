"""A TCP port on loopback that no other dsabench has, and the proof that it is free again."""

from __future__ import annotations

import asyncio
import errno
import random
import socket
from pathlib import Path
from types import TracebackType
from typing import Self

from dsabench.errors import TrialFault
from dsabench.runtimes.faults import raise_or_note
from dsabench.runtimes.locks import lock_folder, release, try_lock

HOST = "127.0.0.1"
_LOWEST = 20000
_EPHEMERAL_LOW = Path("/proc/sys/net/ipv4/ip_local_port_range")
_FREE_TIMEOUT_S = 3.0


class PortLease:
    """`async with PortLease() as lease:` a port, from below the range from which clients' own ports come.

    Between the check and the server's own bind another program can still take it: that is a `port_in_use` fault, and
    the boot is tried on the next port. Other dsabench processes are kept off by a lock.
    """

    port: int
    fd: int
    """Holds the lock; hand it to the keeper, so that the port stays ours as long as the server lives."""

    async def __aenter__(self) -> Self:
        for port in _candidates():
            fd = try_lock(_lock_file(port))
            if fd is None:
                continue
            if is_free(port):
                self.port, self.fd = port, fd
                return self
            release(fd, _lock_file(port))
        raise TrialFault("port_in_use", f"no free port on {HOST}", stage="boot", transient=True)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            raise_or_note(await self._still_open(), error)
        finally:
            release(self.fd, _lock_file(self.port))

    async def _still_open(self) -> TrialFault | None:
        deadline = asyncio.get_running_loop().time() + _FREE_TIMEOUT_S
        while not is_free(self.port):
            if asyncio.get_running_loop().time() > deadline:
                return TrialFault("not_gone", f"port {self.port} is still open after the stop", stage="stop")
            await asyncio.sleep(0.05)
        return None


def _lock_file(port: int) -> Path:
    return lock_folder() / f"port-{port}.lock"


def is_free(port: int) -> bool:
    """Whether a server could listen there now; closed connections that linger in TIME_WAIT do not count."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
            probe.listen(1)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                return False
            raise
    return True


def _candidates() -> list[int]:
    try:
        end = int(_EPHEMERAL_LOW.read_text().split()[0])
    except (OSError, ValueError):
        end = 32768
    if end - _LOWEST < 1000:  # the range was widened: take from inside it
        end = 60000
    return random.SystemRandom().sample(range(_LOWEST, end), 200)
