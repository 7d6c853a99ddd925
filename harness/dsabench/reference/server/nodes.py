"""Ranks on several machines: what is a pipe between processes of one machine is a connection to the first machine here.

A rank elsewhere has two: one to the server, one to rank 0. Objects are unpickled from them, so both ends first show that they know
the secret that all processes of a deployment share.
"""

from __future__ import annotations

import logging
import os
import pickle
import socket
import struct
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from itertools import product
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection, answer_challenge, deliver_challenge
from typing import NamedTuple

from dsabench.errors import InputError
from dsabench.reference.server.arguments import ServerArgs
from dsabench.runtimes.orphans import MARK

_OWN = {"host", "port", "node_rank", "log_level", "cpu_threads", "device"}
"""Flags that may differ from machine to machine."""
_log = logging.getLogger(__name__)
_JOIN_S = 300.0
"""For the first machine to listen: it may be started after the others."""
_RETRY_S = 0.2
_GREETING_S = 5.0
"""For whoever connects to say who it is."""


class _Greeting(NamedTuple):
    rank: int
    to: str
    """`server` or `leader`."""
    flags: dict[str, object]
    """Those that have to be the same everywhere."""


@dataclass(frozen=True, slots=True)
class FarConnections:
    """Between the first machine and a rank of another."""

    server: Connection
    leader: Connection


def meet(args: ServerArgs) -> dict[int, FarConnections]:
    """On the first machine: wait for the ranks of the others, for as long as it takes. Nothing on a single one.

    Raises:
        InputError: the address cannot be listened on, the secret is missing, or another machine has other flags.

    """
    if args.dist_init_addr is None or args.nnodes == 1:
        return {}
    host, port = args.dist_init_addr
    far = [rank for node in range(1, args.nnodes) for rank in args.parallel.on_node(node, args.nnodes)]
    made: dict[tuple[int, str], Connection] = {}
    secret = _secret()
    try:
        listener = socket.create_server((host, port))
    except OSError as error:
        raise InputError(f"--dist-init-addr {host}:{port}: {error.strerror}") from error
    with listener:
        _log.info("Waiting at %s:%d for the ranks of other machines: %s.", host, port, ", ".join(map(str, far)))
        while len(made) < 2 * len(far):
            accepted, _ = listener.accept()
            found = _greeted(accepted, secret)
            if found is None:
                continue
            greeting, connection = found
            if other := [name for name, value in _flags(args).items() if greeting.flags.get(name) != value]:
                flags = ", ".join(f"--{name.replace('_', '-')}" for name in other)
                raise InputError(f"rank {greeting.rank} was started with other flags: {flags}")
            if greeting.rank in far:
                made[greeting.rank, greeting.to] = connection
    return {rank: FarConnections(made[rank, "server"], made[rank, "leader"]) for rank in far}


def join(args: ServerArgs) -> dict[int, FarConnections]:
    """On another machine: connect each of its ranks with the first one.

    Raises:
        InputError: nobody answers there, or it has another secret.

    """
    assert args.dist_init_addr is not None, "several machines have it"
    secret, made, until_s = _secret(), dict[tuple[int, str], Connection](), time.monotonic() + _JOIN_S
    for rank, to in product(args.ranks_here, ("server", "leader")):
        made[rank, to] = _joined(args.dist_init_addr, secret, _Greeting(rank, to, _flags(args)), until_s)
        until_s = 0.0  # it listens until all have come
    return {rank: FarConnections(made[rank, "server"], made[rank, "leader"]) for rank in args.ranks_here}


def _secret() -> bytes:
    """What all processes of a boot have, and nobody else."""
    found = os.environ.get(MARK)
    if not found:
        raise InputError(f"--nnodes: {MARK} has to be set, to the same secret on all machines")
    return found.encode()


def _flags(args: ServerArgs) -> dict[str, object]:
    return {name: value for name, value in asdict(args).items() if name not in _OWN}


def _greeted(accepted: socket.socket, secret: bytes) -> tuple[_Greeting, Connection] | None:
    """Who connected; None for a stranger."""
    with accepted:
        accepted.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, _timeval(_GREETING_S))
        connection = _connection(accepted)
        try:
            deliver_challenge(connection, secret)
            answer_challenge(connection, secret)
            greeting = connection.recv()
        except (AuthenticationError, EOFError, OSError, pickle.UnpicklingError):
            connection.close()
            return None
        accepted.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, _timeval(0.0))
    return greeting, connection


def _joined(address: tuple[str, int], secret: bytes, greeting: _Greeting, until_s: float) -> Connection:
    with _called(address, until_s) as called:
        connection = _connection(called)
    try:
        answer_challenge(connection, secret)
        deliver_challenge(connection, secret)
        connection.send(greeting)
    except (AuthenticationError, EOFError, OSError) as error:
        connection.close()
        host, port = address
        why = f"has another {MARK}" if isinstance(error, AuthenticationError) else "went away"
        raise InputError(f"--dist-init-addr {host}:{port}: what answers there {why}") from error
    return connection


def _called(address: tuple[str, int], until_s: float) -> socket.socket:
    while True:
        try:
            called = socket.create_connection(address, timeout=_GREETING_S)
        except OSError as error:
            if time.monotonic() > until_s:
                host, port = address
                raise InputError(f"--dist-init-addr {host}:{port}: {error.strerror or 'no answer'}") from error
            time.sleep(_RETRY_S)
        else:
            called.settimeout(None)
            return called


def _connection(of: socket.socket) -> Connection:
    """On the same socket: it stays open where `of` is closed. Small messages are sent at once."""
    with suppress(OSError):
        of.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return Connection(os.dup(of.fileno()))


def _timeval(seconds: float) -> bytes:
    return struct.pack("ll", int(seconds), 0)
