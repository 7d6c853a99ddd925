"""The server's side of its ranks: routes requests to the group with the least to do, hears of tokens and of deaths."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from multiprocessing.connection import Connection

from dsabench.errors import InputError
from dsabench.reference.engine.layout import ParallelLayout
from dsabench.reference.server.asked import Asked
from dsabench.reference.server.calls import (
    Abort,
    Answer,
    Ask,
    Call,
    Flush,
    Limit,
    News,
    Refused,
    Report,
    Started,
    Status,
    Stop,
    Submit,
)
from dsabench.reference.server.family import Member, RankDiedError, end

_log = logging.getLogger(__name__)
_WITNESSES_S = 0.3
"""After a rank's death, for those to die that it takes along: the one that was killed is the cause."""
_LAST_BREATH_S = 1.0
"""More than the kernel takes to end a process that has closed its files already."""


@dataclass(slots=True)
class Group:
    """A scheduler, as the server sees it."""

    number: int
    """Within its replica."""
    replica: Callable[[Call], None]
    """Sends a call to all ranks of its replica."""
    requests: dict[str, Asked] = field(default_factory=dict)
    started: Started | None = None

    @property
    def load(self) -> tuple[int, int]:
        """Unfinished requests, and their tokens."""
        return len(self.requests), sum(request.total_tokens for request in self.requests.values())


@dataclass(slots=True)
class _Question:
    """Asked of all groups."""

    done: asyncio.Future[None]
    answers: dict[int, bool | Status] = field(default_factory=dict)


class Worker:
    """All ranks. Its methods are called on the event loop."""

    def __init__(self, replicas: Sequence[Sequence[Member]], parallel: ParallelLayout) -> None:
        self._loop = asyncio.get_running_loop()
        self._members = [member for replica in replicas for member in replica]
        self._ended: asyncio.Future[None] = self._loop.create_future()
        self._questions: dict[int, _Question] = {}
        self._tickets = itertools.count()
        # calls are sent by threads, as a pipe may be full while a rank computes
        self._senders = [ThreadPoolExecutor(1, thread_name_prefix="calls") for _ in replicas]
        self._replicas = [
            partial(_send, sender, replica[0].pipe) for replica, sender in zip(replicas, self._senders, strict=True)
        ]
        self.groups: list[Group] = []
        width = parallel.tp // parallel.groups
        for replica, send in zip(replicas, self._replicas, strict=True):
            groups = [Group(number, send) for number in range(parallel.groups)]
            self.groups += groups
            for rank, member in enumerate(replica):
                self._listen(member, groups[rank // width])

    @property
    def ready(self) -> Started | None:
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

    def submit(self, request: Asked) -> None:
        """Give a request to the group with the least to do; its listener hears of every token from now on."""
        group = min(self.groups, key=lambda one: one.load)
        request.dp_rank = self.groups.index(group) if len(self.groups) > 1 else None
        group.requests[request.id] = request
        group.replica(_submit(group.number, request))

    def abort(self, request_id: str | None, message: str) -> None:
        """End one request, or all where the id is None. Their listeners hear of it."""
        self._tell_all(Abort(request_id, message))

    async def flush(self) -> bool:
        """Forget all prefixes; False where requests are running or waiting."""
        return all(await self._ask(Flush))

    async def limit(self, requests: int) -> list[bool]:
        """Let each group run at most so many requests; False where a group cannot."""
        return [answer is True for answer in await self._ask(partial(Limit, requests=requests))]

    async def statuses(self) -> list[Status]:
        """Of each group."""
        return [answer for answer in await self._ask(Ask) if isinstance(answer, Status)]

    def stop(self) -> None:
        """Let `run` return after the step in progress; at once while a rank still boots, as that one hears nothing."""
        if self.ready is None and not self._ended.done():
            self._ended.set_result(None)
        else:
            self._tell_all(Stop())

    def _tell_all(self, call: Call) -> None:
        for send in self._replicas:
            send(call)

    async def _ask(self, make: Callable[[int], Flush | Limit | Ask]) -> list[bool | Status]:
        ticket = next(self._tickets)
        question = self._questions[ticket] = _Question(self._loop.create_future())
        self._tell_all(make(ticket))
        try:
            await question.done
        finally:
            del self._questions[ticket]
        return [question.answers[index] for index in range(len(self.groups))]

    def _listen(self, member: Member, group: Group) -> None:
        def hear() -> None:
            try:
                while member.pipe.poll():
                    self._hear(group, member.pipe.recv())
            except (EOFError, OSError):
                self._loop.remove_reader(member.pipe.fileno())

        def bury() -> None:
            self._loop.remove_reader(member.process.sentinel)
            hear()
            member.process.join(_LAST_BREATH_S)  # its end of the pipe closes a moment before its exit code can be had
            self._loop.call_later(0.0 if member.process.exitcode == 0 else _WITNESSES_S, self._autopsy)

        self._loop.add_reader(member.pipe.fileno(), hear)
        self._loop.add_reader(member.process.sentinel, bury)

    def _hear(self, group: Group, report: Report) -> None:
        match report:
            case Started():
                group.started = report
                if self.ready:
                    _log.info("The server is fired up and ready to roll!")
            case Refused():
                if not self._ended.done():
                    self._ended.set_exception(InputError(report.message))
            case Answer():
                if question := self._questions.get(report.ticket):
                    question.answers[self.groups.index(group)] = report.value
                    if len(question.answers) == len(self.groups):
                        question.done.set_result(None)
            case _:
                for news in report:
                    _publish(group, news)

    def _autopsy(self) -> None:
        """Name the cause: a rank that was killed rather than one that then missed it."""
        codes = [(member.process.exitcode, member.name) for member in self._members]
        dead = [(code, name) for code, name in codes if code is not None]
        if self._ended.done():
            return
        if any(code for code, _ in dead):
            code, name = min(dead)  # a signal's is negative
            self._ended.set_exception(RankDiedError(name, code))
        elif len(dead) == len(codes):
            self._ended.set_result(None)


def _submit(number: int, request: Asked) -> Submit:
    parcel, request.parcel = request.parcel, None
    return Submit(number, request.id, request.prompt, request.sampling, parcel, hand_over=request.hand_over)


def _send(sender: ThreadPoolExecutor, pipe: Connection, call: Call) -> None:
    sender.submit(pipe.send, call)


def _publish(group: Group, news: News) -> None:
    request = group.requests.get(news.id)
    if request is None:
        return
    request.output += news.tokens
    request.cached_tokens, request.parcel = news.cached_tokens, news.parcel
    if news.update.finish is not None:
        del group.requests[news.id]
    request.listen(news.update)
