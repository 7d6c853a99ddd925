"""`python -m dsabench.reference.launch_server --model-path small --port 30000 …`.

Exit codes: 0 stopped by a signal, 1 the engine failed, 2 a flag, environment variable or table is wrong (one line),
3 the address is in use (one line).
"""

from __future__ import annotations

import asyncio
import ctypes
import errno
import logging
import signal
import socket
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack

from aiohttp import web

from dsabench.errors import InputError
from dsabench.reference.server.app import ReferenceApp
from dsabench.reference.server.arguments import ServerArgs, parse
from dsabench.reference.server.log_format import LOG_TIME, log_format
from dsabench.reference.server.nodes import join, meet
from dsabench.reference.server.rank_pool import (
    ENDING,
    RankDiedError,
    RankHandle,
    RankPool,
    forked_ranks,
    run_elsewhere,
)

_log = logging.getLogger(__name__)
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8  # malloc.h
_MMAP_BYTES = 32 << 20
"""The largest value that glibc takes."""
_TRIM_BYTES = 1 << 30
_GRACE_S = 1.0
"""For running requests after a signal."""
_CLOSE_S = 0.5


def main(argv: Sequence[str] | None = None) -> int:
    """Serve until SIGTERM or SIGINT; returns the exit code. On another machine than the first there are ranks alone."""
    try:
        args = parse(sys.argv[1:] if argv is None else argv)
        listener = None if args.node_rank else _listen(args)
        keep_freed_memory()
        logging.basicConfig(
            level=args.log_level.upper(),
            stream=sys.stderr,
            format=log_format(),
            datefmt=LOG_TIME,
        )
        logging.getLogger("aiohttp.access").setLevel(logging.WARNING)
        if listener is None:
            return run_elsewhere(args, join(args))
        with listener, forked_ranks(args, meet(args), listener.close) as replicas:
            return asyncio.run(_serve(args, listener, replicas))
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)  # noqa: T201 (one line for whoever typed the command)
        return 2
    except _AddressInUseError as error:
        print(f"error: {error}", file=sys.stderr)  # noqa: T201
        return 3


class _AddressInUseError(Exception):
    pass


def _listen(args: ServerArgs) -> socket.socket:
    """Bind before anything slow, so that a taken port is known at once."""
    try:
        return socket.create_server((args.host, args.port))
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise _AddressInUseError(f"{args.host}:{args.port}: address already in use") from error
        raise InputError(f"--host {args.host} --port {args.port}: {error.strerror}") from error


async def _serve(args: ServerArgs, listener: socket.socket, replicas: list[list[RankHandle]]) -> int:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in ENDING:
        loop.add_signal_handler(number, stop.set)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)
    ranks = RankPool(replicas, args.parallel)
    server = ReferenceApp(args, ranks)
    runner = web.AppRunner(server.application(), handler_cancellation=True, shutdown_timeout=_CLOSE_S, access_log=None)
    await runner.setup()
    await web.SockSite(runner, listener).start()
    _log.info("Listening on http://%s:%d", *listener.getsockname()[:2])
    async with AsyncExitStack() as stack:
        if args.disaggregation_mode == "prefill":
            await stack.enter_async_context(server.transfers.open(args.host, args.disaggregation_bootstrap_port))
        engine = await _until_stopped(server, ranks, stop)
        _hear_no_more(loop)
    await runner.cleanup()
    return _exit_code(engine.exception())


def _hear_no_more(loop: asyncio.AbstractEventLoop) -> None:
    """What is left takes no time, and the loop's end would give a second Ctrl-C its traceback back."""
    signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)  # of no use where another thread is told
    for number in ENDING:
        loop.remove_signal_handler(number)
        signal.signal(number, signal.SIG_IGN)


async def _until_stopped(server: ReferenceApp, ranks: RankPool, stop: asyncio.Event) -> asyncio.Task[None]:
    """The engine's task, which is done."""
    engine = asyncio.create_task(ranks.run())
    stopped = asyncio.create_task(stop.wait())
    await asyncio.wait({engine, stopped}, return_when=asyncio.FIRST_COMPLETED)
    if not engine.done():
        _log.info("Signal received. Draining requests and shutting down...")
        await server.drain(_GRACE_S)
        ranks.stop()
        await asyncio.wait({engine})
    stopped.cancel()
    return engine


def _exit_code(error: BaseException | None) -> int:
    if isinstance(error, InputError):
        raise error
    if isinstance(error, RankDiedError):
        _log.critical("Scheduler hit an exception: %s", error)
        return error.exit_code
    if error is not None:
        raise error
    return 0


def keep_freed_memory() -> None:
    """Serve activations from memory that is mapped already.

    By default each forward pass gives its large blocks back to the kernel and faults them in again, until malloc has
    raised its thresholds by itself: the first seconds of a server are then half as fast as the rest. To be called
    before there are threads. Does nothing on other C libraries.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        for parameter, value in ((_MMAP_THRESHOLD, _MMAP_BYTES), (_TRIM_THRESHOLD, _TRIM_BYTES), (_ARENA_MAX, 1)):
            mallopt(parameter, value)
