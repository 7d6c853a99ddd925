"""Run a worker under the interpreter that has the kernels, and start another where a kernel took it down."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from dataclasses import replace
from pathlib import Path

import dsabench
from dsabench.errors import InputError, TrialFault
from dsabench.microbench.request import Point, Request

_LINE = 1 << 22
_CRASHES = 20
_TAIL = 4000
_DONE = ("check", "point", "pair")
_FIRST = ("device", "candidate", "ceilings")
_LAST = ("end", "mistake", "lost")

Said = dict[str, object]
"""One line of a worker; `is` says what it is."""


async def conduct(request: Request, python: str | None) -> AsyncGenerator[Said, None]:
    """Yield what workers say. A point whose worker died or fell silent comes with status `crashed`.

    Raises:
        InputError: there is no such interpreter, or the request names what there is not.
        TrialFault: a worker could not start, or died outside a point.

    """
    deadline = None if request.budget_s is None else time.monotonic() + request.budget_s
    dead: Point | None = None
    for attempt in range(_CRASHES):
        async with aclosing(_worker(request, python)) as worker:
            async for heard in worker:
                if heard["is"] == "end":
                    return
                if heard["is"] == "mistake":
                    raise InputError(str(heard["message"]))
                said = heard
                if heard["is"] == "crash":
                    dead = _point(heard)
                    said = {**heard, "is": "point" if request.action == "bench" else "check"}
                if said["is"] in _DONE:
                    request = replace(request, skip=(*request.skip, _point(said)))
                if said["is"] != "lost" and (attempt == 0 or said["is"] not in _FIRST):
                    yield said
        if deadline is not None:
            request = replace(request, budget_s=max(0.0, deadline - time.monotonic()))
    raise TrialFault("exited", f"kernels took {_CRASHES} workers down; the last at {dead}", stage="load")


async def _worker(request: Request, python: str | None) -> AsyncGenerator[Said, None]:
    """What one says; last comes `end`, `mistake`, `lost`, or `crash` with the point that ran."""
    process = await _start(python)
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    noise = asyncio.create_task(_tail_of(process.stderr))
    running: Point | None = None
    reason = ""
    try:
        process.stdin.write((request.line() + "\n").encode())
        with suppress(ConnectionError):
            await process.stdin.drain()
        while line := await _line(process.stdout, request.patience_s):
            said: Said = json.loads(line)
            running = _point(said) if said["is"] == "start" else None if said["is"] in _DONE else running
            if said["is"] != "start":
                yield said
            if said["is"] in _LAST:
                return
        reason = f"the worker ended with {await process.wait()}"
    except TimeoutError:
        reason = f"nothing was heard for {request.patience_s:g} s"
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # a compiler that a kernel started goes too
        await process.wait()
        tail = await noise
    reason += f": {tail.splitlines()[-1]}" if tail.strip() else ""
    if running is None:
        raise TrialFault("exited", reason, stage="load", log_tail=tail)
    yield {"is": "crash", **running._asdict(), "status": "crashed", "reason": reason}


async def _line(stream: asyncio.StreamReader, patience_s: float) -> bytes:
    """The next line, empty at the end. `asyncio.wait_for` would lose a Ctrl-C before Python 3.12."""
    async with asyncio.timeout(patience_s):
        return await stream.readline()


async def _start(python: str | None) -> asyncio.subprocess.Process:
    """The interpreter runs this source tree's worker; of dsabench's dependencies it needs none but torch."""
    roots = [str(Path(dsabench.__file__).parent.parent), str(_kernels_root())]
    path = os.pathsep.join([*roots, *filter(None, [os.environ.get("PYTHONPATH")])])
    try:
        return await asyncio.create_subprocess_exec(
            *(python or sys.executable, "-P", "-m", "dsabench.microbench.worker"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": path},
            limit=_LINE,
            start_new_session=True,
        )
    except OSError as error:
        raise InputError(f"--kernel-python {python}: {error.strerror}") from error


def _kernels_root() -> Path:
    """The folder above dsakernels, found without importing it."""
    beside = Path(dsabench.__file__).parent.parent
    checkout = beside.parent / "kernels"
    return checkout if (checkout / "dsakernels").is_dir() else beside


async def _tail_of(stream: asyncio.StreamReader) -> str:
    """The last of what a worker and its compilers print, read as it comes so that they never wait."""
    tail = b""
    while chunk := await stream.read(1 << 16):
        tail = (tail + chunk)[-_TAIL:]
    return tail.decode(errors="replace")


def _point(said: Said) -> Point:
    return Point(*(str(said[name]) for name in Point._fields))
