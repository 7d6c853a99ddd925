"""The engine's thread, and the way to it from the event loop."""

from __future__ import annotations

import asyncio
import logging
import os
import queue
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

from dsabench.reference.arguments import ServerArgs
from dsabench.reference.request import Request, Update

if TYPE_CHECKING:
    from dsabench.reference.engine import Engine

T = TypeVar("T")
_log = logging.getLogger(__name__)


class Worker:
    """Runs an `Engine` in one thread. Everything but `_run` is called on the event loop."""

    def __init__(self, args: ServerArgs) -> None:
        self._args = args
        self._commands: queue.SimpleQueue[Callable[[Engine], None]] = queue.SimpleQueue()
        self._stopping = False
        self._loop = asyncio.get_running_loop()
        self._ready: asyncio.Future[Engine] = self._loop.create_future()

    @property
    def engine(self) -> Engine | None:
        """The engine once it is ready. Other threads only read its counters."""
        return self._ready.result() if self._ready.done() else None

    async def run(self) -> None:
        """Boot and serve until `stop`.

        Raises:
            InputError: environment or tables are unusable.
            Exception: whatever ended the engine.

        """
        with ThreadPoolExecutor(1, thread_name_prefix="engine") as pool:
            await self._loop.run_in_executor(pool, self._run)

    def submit(self, request: Request) -> None:
        """Queue a request; its listener hears of every token from now on."""
        self._commands.put(lambda engine: engine.scheduler.add(request))

    def abort(self, request_id: str | None, message: str) -> None:
        """End one request, or all where the id is None. Their listeners hear of it."""

        def command(engine: Engine) -> None:
            self._tell(engine.scheduler.abort(request_id, message))

        self._commands.put(command)

    async def flush(self) -> bool:
        """Forget all prefixes; False where requests are running or waiting."""
        done: asyncio.Future[bool] = self._loop.create_future()

        def command(engine: Engine) -> None:
            self._loop.call_soon_threadsafe(_resolve, done, engine.flush())

        self._commands.put(command)
        return await done

    def stop(self) -> None:
        """Let `run` return after the step in progress."""
        self._stopping = True
        self._commands.put(lambda _: None)

    def _run(self) -> None:
        # Imported here because it takes a second, in which the server answers already that it is not ready.
        from dsabench.reference.engine import Engine  # noqa: PLC0415
        from dsabench.reference.settings import resolve  # noqa: PLC0415

        engine = Engine(resolve(self._args, os.environ))
        if not self._args.skip_server_warmup:
            engine.warm_up()
        self._loop.call_soon_threadsafe(self._announce, engine)
        while not self._stopping:
            self._obey(engine)
            self._tell(engine.step() or ())

    def _announce(self, engine: Engine) -> None:
        self._ready.set_result(engine)
        _log.info("The server is fired up and ready to roll!")

    def _obey(self, engine: Engine) -> None:
        """Carry out what was asked meanwhile; with nothing to compute, wait until something is asked."""
        if engine.scheduler.idle and not self._stopping:
            self._commands.get()(engine)
        while not self._commands.empty():
            self._commands.get()(engine)

    def _tell(self, requests: Sequence[Request]) -> None:
        if requests:
            self._loop.call_soon_threadsafe(_publish, [(request, request.update()) for request in requests])


def _publish(updates: Sequence[tuple[Request, Update]]) -> None:
    for request, update in updates:
        request.listen(update)


def _resolve(future: asyncio.Future[T], value: T) -> None:
    if not future.done():
        future.set_result(value)
