"""All ranks of a server: forked, asked, heard and ended.

They are forked before the event loop starts and before anything heavy is imported. A pipe whose other end is gone reads
as closed only if nobody else holds that end too; so every rank closes all pipes but its own.

The signals that end a server are the server's to hear, and it has to be able to act on them: between the fork and its
event loop they wait (`ENDING`), since an exception there would leave it waiting for ranks that wait for it.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import math
import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from multiprocessing.connection import Connection
from multiprocessing.context import ForkProcess

from dsabench.errors import InputError
from dsabench.reference.engine.layout import ParallelLayout, RankPlacement
from dsabench.reference.server.arguments import ServerArgs
from dsabench.reference.server.exchange import ServedRequest
from dsabench.reference.server.nodes import FarConnections
from dsabench.reference.server.rank_messages import (
    AbortCall,
    CallReply,
    EngineReady,
    EngineStatus,
    FlushCall,
    LimitCall,
    RankCall,
    RankPipes,
    RankReport,
    StartRefused,
    StatusQuery,
    StepUpdate,
    StopCall,
    SubmitCall,
)
from dsabench.signals import die_with_parent

_log = logging.getLogger(__name__)
ENDING = (signal.SIGTERM, signal.SIGINT)
_WITNESSES_S = 0.3
"""After a rank's death, for those to die that it takes along: the one that was killed is the cause."""
_LAST_BREATH_S = 1.0
"""More than the kernel takes to end a process that has closed its files already."""
_FAREWELL_S = 1.0
"""For the first machine to end the ranks of another one that was told to end; it gives its requests as long."""
_LOOK_S = 0.1
_FORK = multiprocessing.get_context("fork")


class RankDiedError(Exception):
    """A rank ended by itself."""

    def __init__(self, name: str, code: int | None) -> None:
        if code is None:
            how = "is gone with its machine"
        else:
            how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        super().__init__(f"{name} {how}; the others end with it")
        self.exit_code = 1 if code is None or code > 0 else 128 - code
        """As a shell tells a signal."""


@dataclass(frozen=True, slots=True)
class RankHandle:
    """One rank's process, from outside."""

    name: str
    process: ForkProcess | None
    """None on another machine, where the end of its pipe tells its own."""
    pipe: Connection


@contextmanager
def forked_ranks(
    args: ServerArgs, far: Mapping[int, FarConnections], close: Callable[[], None]
) -> Iterator[list[list[RankHandle]]]:
    """The ranks of every replica, those of other machines too; none that is here outlives the context. Signals to end are held back
    when it opens.

    `far` are the connections with ranks of other machines. `close` is called in each rank here, for what else it must not hold open.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
    replicas = _fork(args, far, close)
    try:
        yield replicas
    finally:
        end([member for replica in replicas for member in replica])


def end(members: Sequence[RankHandle]) -> None:
    """Kill them, and wait until they are gone."""
    _kill([member.process for member in members if member.process is not None])


def _kill(processes: Collection[ForkProcess]) -> None:
    for process in processes:
        process.kill()
    for process in processes:
        process.join()


def _fork(args: ServerArgs, far: Mapping[int, FarConnections], close: Callable[[], None]) -> list[list[RankHandle]]:
    parallel = args.parallel
    outer: dict[tuple[int, int], Connection] = {}
    inner: dict[tuple[int, int], RankPipes] = {}
    for replica in range(parallel.replicas):
        chains = {rank: _FORK.Pipe() for rank in range(1, parallel.tp) if rank not in far}
        others = [chains[rank][0] if rank in chains else far[rank].leader for rank in range(1, parallel.tp)]
        for rank in range(parallel.tp):
            if rank in far:
                outer[replica, rank] = far[rank].server
                continue
            outer[replica, rank], server = _FORK.Pipe()
            leading = RankPipes(server, tuple(others))
            inner[replica, rank] = leading if rank == 0 else RankPipes(server, (), chains[rank][1])
    forked = _started(args, inner, set(outer.values()), close)
    replicas: list[list[RankHandle]] = [[] for _ in range(parallel.replicas)]
    for (replica, rank), pipe in outer.items():
        name = f"rank {rank}" + (f" of replica {replica}" if parallel.replicas > 1 else "")
        replicas[replica].append(RankHandle(name, forked.get((replica, rank)), pipe))
    return replicas


def run_elsewhere(args: ServerArgs, far: Mapping[int, FarConnections]) -> int:
    """The ranks of another machine than the first, until that one says that it is over, or is gone. Returns the exit code."""
    signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
    inner = {(0, rank): RankPipes(of_rank.server, (), of_rank.leader) for rank, of_rank in far.items()}
    forked = {f"rank {rank}": process for (_, rank), process in _started(args, inner, set(), lambda: None).items()}
    until_s = math.inf
    try:
        while any(one.is_alive() for one in forked.values()) and time.monotonic() < until_s:
            if any(one.exitcode for one in forked.values()):
                break
            if signal.sigtimedwait(ENDING, _LOOK_S) is not None:  # the first machine lets requests end first
                until_s = min(until_s, time.monotonic() + _FAREWELL_S)
        died = [(code, name) for name, one in forked.items() if (code := one.exitcode)]
    finally:
        _kill(forked.values())
    if not died:
        return 0
    code, name = min(died)
    cause = RankDiedError(name, code)
    _log.critical("Scheduler hit an exception: %s", cause)
    return cause.exit_code


def _started(
    args: ServerArgs,
    inner: Mapping[tuple[int, int], RankPipes],
    outer: AbstractSet[Connection],
    close: Callable[[], None],
) -> dict[tuple[int, int], ForkProcess]:
    """A process for each rank of a replica here, with its ends of pipes, which this process closes."""
    ends = {*outer, *(end for pipes in inner.values() for end in pipes.kept)}
    own, forked = os.getpid(), dict[tuple[int, int], ForkProcess]()
    for (replica, rank), pipes in inner.items():

        def main(replica: int = replica, rank: int = rank, pipes: RankPipes = pipes) -> None:
            _die_with(own)
            close()
            for end in ends - pipes.kept:
                end.close()
            _run(args, replica * args.parallel.tp + rank, args.parallel.seat(rank), pipes)

        process = _FORK.Process(target=main)
        process.start()
        forked[replica, rank] = process
    for pipes in inner.values():
        for end in pipes.kept:
            end.close()
    return forked


def _die_with(server: int) -> None:
    """Until it listens to its pipe, which takes a boot, a rank would not notice that the server was killed."""
    die_with_parent()
    if os.getppid() != server:  # it died before the line above
        os._exit(1)


def _run(args: ServerArgs, number: int, seat: RankPlacement, pipes: RankPipes) -> None:
    """Whatever it raises ends the process with its traceback and exit code 1."""
    for ending in ENDING:
        signal.signal(ending, signal.SIG_IGN)  # the server's to hear: it lets requests end first
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)
    # imported here because it takes a second, in which the server answers already that it is not ready
    from dsabench.reference.server import rank_process  # noqa: PLC0415

    rank_process.main(args, rank_process.RankChannel(number, seat, pipes))


@dataclass(slots=True)
class SchedulerGroup:
    """A scheduler, as the server sees it."""

    number: int
    """Within its replica."""
    replica: Callable[[RankCall], None]
    """Sends a call to all ranks of its replica."""
    requests: dict[str, ServedRequest] = field(default_factory=dict)
    started: EngineReady | None = None

    @property
    def load(self) -> tuple[int, int]:
        """Unfinished requests, and their tokens."""
        return len(self.requests), sum(request.total_tokens for request in self.requests.values())


@dataclass(slots=True)
class _PendingReply:
    """Asked of all groups."""

    done: asyncio.Future[None]
    answers: dict[int, bool | EngineStatus] = field(default_factory=dict)


class RankPool:
    """All ranks. Its methods are called on the event loop."""

    def __init__(self, replicas: Sequence[Sequence[RankHandle]], parallel: ParallelLayout) -> None:
        self._loop = asyncio.get_running_loop()
        self._members = [member for replica in replicas for member in replica]
        self._ended: asyncio.Future[None] = self._loop.create_future()
        self._stopping = False
        self._gone: set[str] = set()
        """Names of ranks of other machines whose pipes have ended."""
        self._questions: dict[int, _PendingReply] = {}
        self._tickets = itertools.count()
        # calls are sent by threads, as a pipe may be full while a rank computes
        self._senders = [ThreadPoolExecutor(1, thread_name_prefix="calls") for _ in replicas]
        self._replicas = [
            partial(_send, sender, replica[0].pipe) for replica, sender in zip(replicas, self._senders, strict=True)
        ]
        self.groups: list[SchedulerGroup] = []
        width = parallel.tp // parallel.groups
        for replica, send in zip(replicas, self._replicas, strict=True):
            groups = [SchedulerGroup(number, send) for number in range(parallel.groups)]
            self.groups += groups
            for rank, member in enumerate(replica):
                self._listen(member, groups[rank // width])

    @property
    def ready(self) -> EngineReady | None:
        """What is served, once every group is ready."""
        return self.groups[0].started if all(group.started for group in self.groups) else None

    async def run(self) -> None:
        """Return when the ranks have ended after `stop`; nothing is left of them then.

        Raises:
            InputError: environment or tables are unusable.
            RankDiedError: a rank ended by itself.

        """
        try:
            await self._ended
        finally:
            end(self._members)
            for sender in self._senders:
                sender.shutdown(wait=False)

    def submit(self, request: ServedRequest) -> None:
        """Give a request to the group with the least to do; its listener hears of every token from now on."""
        group = min(self.groups, key=lambda one: one.load)
        request.dp_rank = self.groups.index(group) if len(self.groups) > 1 else None
        group.requests[request.id] = request
        group.replica(_submit(group.number, request))

    def abort(self, request_id: str | None, message: str) -> None:
        """End one request, or all where the id is None. Their listeners hear of it."""
        self._tell_all(AbortCall(request_id, message))

    async def flush(self) -> bool:
        """Forget all prefixes; False where requests are running or waiting."""
        return all(await self._ask(FlushCall))

    async def limit(self, requests: int) -> list[bool]:
        """Let each group run at most so many requests; False where a group cannot."""
        return [answer is True for answer in await self._ask(partial(LimitCall, requests=requests))]

    async def statuses(self) -> list[EngineStatus]:
        """Of each group."""
        return [answer for answer in await self._ask(StatusQuery) if isinstance(answer, EngineStatus)]

    def stop(self) -> None:
        """Let `run` return after the step in progress; at once while a rank still boots, as that one hears nothing."""
        self._stopping = True
        if self.ready is None and not self._ended.done():
            self._ended.set_result(None)
        else:
            self._tell_all(StopCall())

    def _tell_all(self, call: RankCall) -> None:
        for send in self._replicas:
            send(call)

    async def _ask(self, make: Callable[[int], FlushCall | LimitCall | StatusQuery]) -> list[bool | EngineStatus]:
        ticket = next(self._tickets)
        question = self._questions[ticket] = _PendingReply(self._loop.create_future())
        self._tell_all(make(ticket))
        try:
            await question.done
        finally:
            del self._questions[ticket]
        return [question.answers[index] for index in range(len(self.groups))]

    def _listen(self, member: RankHandle, group: SchedulerGroup) -> None:
        def hear() -> None:
            try:
                while member.pipe.poll():
                    self._hear(group, member.pipe.recv())
            except (EOFError, OSError):
                self._loop.remove_reader(member.pipe.fileno())
                if process is None:
                    self._gone.add(member.name)
                    self._loop.call_later(0.0 if self._stopping else _WITNESSES_S, self._name_cause)

        def on_exit() -> None:
            assert process is not None, "it is here"
            self._loop.remove_reader(process.sentinel)
            hear()
            process.join(_LAST_BREATH_S)  # its end of the pipe closes a moment before its exit code can be had
            self._loop.call_later(0.0 if process.exitcode == 0 else _WITNESSES_S, self._name_cause)

        process = member.process
        self._loop.add_reader(member.pipe.fileno(), hear)
        if process is not None:
            self._loop.add_reader(process.sentinel, on_exit)

    def _hear(self, group: SchedulerGroup, report: RankReport) -> None:
        match report:
            case EngineReady():
                group.started = report
                if self.ready:
                    _log.info("The server is fired up and ready to roll!")
            case StartRefused():
                if not self._ended.done():
                    self._ended.set_exception(InputError(report.message))
            case CallReply():
                if question := self._questions.get(report.ticket):
                    question.answers[self.groups.index(group)] = report.value
                    if len(question.answers) == len(self.groups):
                        question.done.set_result(None)
            case _:
                for news in report:
                    _publish(group, news)

    def _name_cause(self) -> None:
        """The cause: a rank that was killed, or went with its machine, rather than one that then missed it."""
        codes = [(one.process.exitcode, one.name) for one in self._members if one.process is not None]
        dead = [(code, name) for code, name in codes if code is not None]
        if self._ended.done():
            return
        code, name = min(dead, default=(0, ""))  # a signal's is negative
        if code >= 0 and self._gone and not self._stopping:
            self._ended.set_exception(RankDiedError(min(self._gone), None))
        elif any(code for code, _ in dead):
            self._ended.set_exception(RankDiedError(name, code))
        elif len(dead) + len(self._gone) == len(self._members):
            self._ended.set_result(None)


def _submit(number: int, request: ServedRequest) -> SubmitCall:
    transfer, request.transfer = request.transfer, None
    return SubmitCall(number, request.id, request.prompt, request.sampling, transfer, hand_over=request.hand_over)


def _send(sender: ThreadPoolExecutor, pipe: Connection, call: RankCall) -> None:
    sender.submit(pipe.send, call)


def _publish(group: SchedulerGroup, news: StepUpdate) -> None:
    request = group.requests.get(news.id)
    if request is None:
        return
    request.output += news.tokens
    request.cached_tokens, request.transfer = news.cached_tokens, news.transfer
    if news.update.finish is not None:
        del group.requests[news.id]
    request.listen(news.update)
