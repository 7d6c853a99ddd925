"""Forking the ranks, each with its pipes and nothing else of what its siblings hold.

They are forked before the event loop starts and before anything heavy is imported. A pipe whose other end is gone reads
as closed only if nobody else holds that end too; so every rank closes all pipes but its own.

The signals that end a server are the server's to hear, and it has to be able to act on them: between the fork and its
event loop they wait (`ENDING`), since an exception there would leave it waiting for ranks that wait for it.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.context import ForkProcess

from dsabench.reference.engine.layout import ParallelLayout, RankPlacement
from dsabench.reference.server.arguments import ServerArgs
from dsabench.signals import die_with_parent

ENDING = (signal.SIGTERM, signal.SIGINT)
_FORK = multiprocessing.get_context("fork")


class RankDiedError(Exception):
    """A rank ended by itself."""

    def __init__(self, name: str, code: int) -> None:
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        super().__init__(f"{name} {how}; the others end with it")
        self.exit_code = 128 - code if code < 0 else 1
        """As a shell tells a signal."""


@dataclass(frozen=True, slots=True)
class Member:
    """One rank's process, from outside."""

    name: str
    process: ForkProcess
    pipe: Connection


@dataclass(frozen=True, slots=True)
class Pipes:
    """The ends that one rank keeps."""

    server: Connection
    others: tuple[Connection, ...] = ()
    """To the other ranks of the replica; only rank 0 has them."""
    leader: Connection | None = None
    """To rank 0; only the others have it."""

    @property
    def kept(self) -> set[Connection]:
        """All of them."""
        return {self.server, *self.others, *([self.leader] if self.leader else [])}

    def agree(self, port: int | None) -> int:
        """Rank 0 gives a number, all get it."""
        for other in self.others:
            other.send(port)
        if self.leader is not None:
            port = self.leader.recv()
        assert port is not None, "rank 0 gives it"
        return port


@contextmanager
def family(args: ServerArgs, parallel: ParallelLayout, close: Callable[[], None]) -> Iterator[list[list[Member]]]:
    """The ranks of every replica; none of them outlives the context. Signals to end are held back when it opens.

    `close` is called in each of them, for what else it must not hold open.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
    replicas = _fork(args, parallel, close)
    try:
        yield replicas
    finally:
        end([member for replica in replicas for member in replica])


def end(members: Sequence[Member]) -> None:
    """Kill them, and wait until they are gone."""
    for member in members:
        member.process.kill()
    for member in members:
        member.process.join()


def _fork(args: ServerArgs, parallel: ParallelLayout, close: Callable[[], None]) -> list[list[Member]]:
    outer: dict[tuple[int, int], Connection] = {}
    inner: dict[tuple[int, int], Pipes] = {}
    for replica in range(parallel.replicas):
        chains = [_FORK.Pipe() for _ in range(parallel.tp - 1)]
        for rank in range(parallel.tp):
            outer[replica, rank], server = _FORK.Pipe()
            leading = Pipes(server, tuple(first for first, _ in chains))
            inner[replica, rank] = leading if rank == 0 else Pipes(server, (), chains[rank - 1][1])
    ends = {*outer.values(), *(end for pipes in inner.values() for end in pipes.kept)}
    family: list[list[Member]] = [[] for _ in range(parallel.replicas)]
    own = os.getpid()
    for (replica, rank), pipes in inner.items():
        name = f"rank {rank}" + (f" of replica {replica}" if parallel.replicas > 1 else "")

        def main(replica: int = replica, rank: int = rank, pipes: Pipes = pipes) -> None:
            _die_with(own)
            close()
            for end in ends - pipes.kept:
                end.close()
            _run(args, replica * parallel.tp + rank, parallel.seat(rank), pipes)

        process = _FORK.Process(target=main, name=name)
        process.start()
        family[replica].append(Member(name, process, outer[replica, rank]))
    for pipes in inner.values():
        for end in pipes.kept:
            end.close()
    return family


def _die_with(server: int) -> None:
    """Until it listens to its pipe, which takes a boot, a rank would not notice that the server was killed."""
    die_with_parent()
    if os.getppid() != server:  # it died before the line above
        os._exit(1)


def _run(args: ServerArgs, number: int, seat: RankPlacement, pipes: Pipes) -> None:
    """Whatever it raises ends the process with its traceback and exit code 1."""
    for ending in ENDING:
        signal.signal(ending, signal.SIG_IGN)  # the server's to hear: it lets requests end first
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)
    # imported here because it takes a second, in which the server answers already that it is not ready
    from dsabench.reference.server import rank as ranks  # noqa: PLC0415

    ranks.main(args, ranks.Post(number, seat, pipes))
