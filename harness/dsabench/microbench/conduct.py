"""Run a worker under the interpreter that has the kernels, and start another where a kernel took it down."""

from __future__ import annotations

import asyncio
import json
import os
import sys
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

Said = dict[str, object]
"""One line of a worker; `is` says what it is."""


async def conduct(request: Request, python: str | None) -> AsyncGenerator[Said, None]:
    """Yield what workers say. A point whose worker died comes as `check` or `point` with status `crashed`.

    Raises:
        InputError: there is no such interpreter, or the request names what there is not.
        TrialFault: a worker could not start, or died outside a point.

    """
    for crash in range(_CRASHES):
        dead: Point | None = None
        async with aclosing(_worker(request, python)) as worker:
            async for said in worker:
                if said["is"] == "crash":
                    point = said["point"]
                    assert isinstance(point, Point)
                    dead = point
                    kind = "check" if request.action == "check" else "point"
                    yield {"is": kind, **point._asdict(), "status": "crashed", "reason": said["reason"]}
                elif said["is"] == "mistake":
                    raise InputError(str(said["message"]))
                else:
                    if said["is"] in ("check", "point"):
                        request = replace(request, skip=(*request.skip, _point(said)))
                    if crash == 0 or said["is"] not in ("device", "candidate"):
                        yield said
        if dead is None:
            return
        request = replace(request, skip=(*request.skip, dead))
    raise TrialFault("exited", f"kernels took {_CRASHES} workers down; the last at {dead}", stage="load")


async def _worker(request: Request, python: str | None) -> AsyncGenerator[Said, None]:
    process = await _start(python)
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    noise = asyncio.create_task(_tail_of(process.stderr))
    running: Point | None = None
    ended = False
    try:
        process.stdin.write((request.line() + "\n").encode())
        with suppress(ConnectionError):
            await process.stdin.drain()
        async for line in process.stdout:
            said: Said = json.loads(line)
            running = _point(said) if said["is"] == "start" else None if said["is"] in ("check", "point") else running
            ended = ended or said["is"] == "end"
            if said["is"] not in ("start", "end"):
                yield said
        code = await process.wait()
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        tail = await noise
    if ended:
        return
    reason = f"the worker ended with {code}" + (f": {tail.splitlines()[-1]}" if tail.strip() else "")
    if running is None:
        raise TrialFault("exited", reason, stage="load", log_tail=tail)
    yield {"is": "crash", "point": running, "reason": reason}


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
