"""Lets requests go when they are due, over as many connections as are wanted."""

from __future__ import annotations

import asyncio
import heapq
from math import ceil
from time import perf_counter_ns
from typing import TYPE_CHECKING

from dsabench.errors import one_line
from dsabench.load.client.connection import StreamConnection
from dsabench.load.client.spool import RequestCounter, RequestTimes, Spool

if TYPE_CHECKING:
    from dsabench.load.client.worker import WorkerShare

_BURST = 16
"""Requests sent in one turn of the loop: a write takes about 10 µs, and between them answers must be stamped."""
_OPENING = 128
"""Connections opened at a time before the start; more than a server's backlog would be refused or retried."""


class Dispatcher:
    """Runs one worker's share. `finished` is done when every request has ended, or holds what stopped the run."""

    def __init__(
        self, share: WorkerShare, times: RequestTimes, spool: Spool, endpoint: tuple[str, int], progress: RequestCounter
    ) -> None:
        self._share, self._times, self._spool, self._endpoint = share, times, spool, endpoint
        self._loop = asyncio.get_running_loop()
        self._context = share.address.context()
        self._idle: list[StreamConnection] = []
        self._due: list[tuple[int, int, int, int]] = []  # heap of (due, session, turn, ready)
        self._timer: asyncio.TimerHandle | None = None
        self._again = False
        self._ready_ns: dict[int, int] = {}  # request → when nothing but the client held it back
        self._place: dict[int, tuple[int, int]] = {}  # running request → (session, turn)
        self._made: dict[int, bytes] = {}  # follow-up that is not sent yet → its request
        self._openings: set[asyncio.Task[None]] = set()
        self._open_sessions = 0
        self._all_taken = False
        self._start_ns = 0
        self.connections: set[StreamConnection] = set()
        self._progress = progress
        self.finished: asyncio.Future[None] = self._loop.create_future()
        spool.on_fault = self._disk_fault

    # life

    async def connect(self) -> None:
        """Open the connections that are wanted at the start. One that fails is tried again when it is needed."""
        left = self._share.connections
        while left > 0:
            batch = min(left, _OPENING)
            opened = await asyncio.gather(*(self._open() for _ in range(batch)), return_exceptions=True)
            made = [connection for connection in opened if isinstance(connection, StreamConnection)]
            self._idle += made
            left = left - batch if made else 0

    def start(self, start_ns: int) -> None:
        """Begin; `start_ns` (perf_counter_ns) is 0.0 of the schedule and may lie ahead."""
        self._start_ns = start_ns
        slots = self._share.slots
        while (slots is None or self._open_sessions < slots) and self._begin_session(start_ns):
            pass
        self._check_end()
        self._dispatch()

    def stop(self) -> None:
        """Close everything; what was running stays unended in the times."""
        if self._timer is not None:
            self._timer.cancel()
        self._due.clear()
        self._idle.clear()
        for task in self._openings:
            task.cancel()
        for connection in list(self.connections):
            connection.index = None
            connection.close()

    @property
    def running(self) -> int:
        """Requests whose answer has not ended."""
        return len(self._place)

    # sessions

    def _begin_session(self, free_ns: int) -> bool:
        session = self._share.next_session()
        if session is None:
            self._all_taken = True
            return False
        self._open_sessions += 1
        due_s = self._share.schedule.due_s
        due_ns = free_ns if due_s is None else self._start_ns + round(due_s[session] * 1e9)
        heapq.heappush(self._due, (due_ns, session, 0, max(due_ns, free_ns)))
        return True

    def _dispatch(self) -> None:
        """Send what is due, a burst at a time."""
        self._again = False
        now_ns = perf_counter_ns()
        for _ in range(_BURST):
            if not self._due or self._due[0][0] > now_ns:
                break
            due_ns, session, turn, ready_ns = heapq.heappop(self._due)
            self._send(self._share.schedule.sessions[session][turn], session, turn, due_ns, ready_ns)
        self._plan_next()

    def _plan_next(self) -> None:
        if not self._due or self._again:
            return
        wait_ns = self._due[0][0] - perf_counter_ns()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if wait_ns <= 0:
            self._again = True
            self._loop.call_soon(self._dispatch)
        else:  # timers of libuv have whole milliseconds and may be early
            self._timer = self._loop.call_later(ceil(wait_ns / 1e6) / 1e3, self._dispatch)

    def _send(self, index: int, session: int, turn: int, due_ns: int, ready_ns: int) -> None:
        self._times.scheduled_ns[index] = due_ns
        self._ready_ns[index], self._place[index] = ready_ns, (session, turn)
        request = self._made.pop(index, None) or self._share.requests[index]
        now_ns = perf_counter_ns()
        while self._idle:
            connection = self._idle.pop()
            if connection.may_send(now_ns):
                self._sent(index, connection.send(index, request))
                return
            connection.close()
        task = self._loop.create_task(self._open_and_send(index, request))
        self._openings.add(task)
        task.add_done_callback(self._openings.discard)

    def _sent(self, index: int, sent_ns: int) -> None:
        self._times.sent_ns[index] = sent_ns
        self._times.late_ns[index] = max(sent_ns - self._ready_ns.pop(index), 0)

    # connections

    async def _open(self) -> StreamConnection:
        host, port = self._endpoint
        address, keeps_answer = self._share.address, self._share.follow_up is not None
        async with asyncio.timeout(self._share.timeouts.connect_s):
            _, connection = await self._loop.create_connection(
                lambda: StreamConnection(self, self._spool, self._share.limits.answer_bytes, keeps_answer=keeps_answer),
                host,
                port,
                ssl=self._context,
                server_hostname=address.host if address.tls else None,
            )
        self.connections.add(connection)
        return connection

    async def _open_and_send(self, index: int, request: bytes | memoryview) -> None:
        try:
            connection = await self._open()
        except TimeoutError:
            error = f"timeout: no connection after {self._share.timeouts.connect_s or 0.0:g} s"
        except OSError as broken:
            error = f"connect: {one_line(str(broken))}"
        else:
            if not self.finished.done():
                self._sent(index, connection.send(index, request))
            return
        now_ns = perf_counter_ns()
        self._sent(index, now_ns)
        self._request_ended(index, now_ns, error)

    # Owner of connections

    def ended(self, connection: StreamConnection, index: int, done_ns: int, error: str | None) -> None:
        """Note the end, and let the slot's next request go at once."""
        self._times.status[index] = connection.status
        if connection.usable:
            self._idle.append(connection)
        self._request_ended(index, done_ns, error, connection.answer)

    def lost(self, connection: StreamConnection) -> None:
        """Forget it."""
        self.connections.discard(connection)
        if connection in self._idle:
            self._idle.remove(connection)

    def _request_ended(self, index: int, done_ns: int, error: str | None, answer: bytearray | None = None) -> None:
        times, schedule = self._times, self._share.schedule
        times.done_ns[index] = done_ns
        if error is not None:
            times.errors[index] = error
        self._progress.ended += 1
        session, turn = self._place.pop(index)
        turns = schedule.sessions[session]
        if turn + 1 < len(turns):
            following = turns[turn + 1]
            if self._share.follow_up is not None:
                self._made[following] = self._share.follow_up(index, following, bytes(answer or b""))
            think_s = 0.0 if schedule.think_s is None else schedule.think_s[following]
            due_ns = done_ns + round(think_s * 1e9)
            heapq.heappush(self._due, (due_ns, session, turn + 1, due_ns))
        else:
            self._open_sessions -= 1
            if not self._all_taken:
                self._begin_session(done_ns)
        self._check_end()
        if self._due and not self._again:
            if self._due[0][0] <= perf_counter_ns():
                self._again = True
                self._loop.call_soon(self._dispatch)
            else:
                self._plan_next()

    def _check_end(self) -> None:
        if self._all_taken and self._open_sessions == 0 and not self.finished.done():
            self.finished.set_result(None)

    def _disk_fault(self, error: OSError) -> None:
        if not self.finished.done():
            self.finished.set_exception(error)
