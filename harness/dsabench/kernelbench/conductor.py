"""Start workers and ask them until every point is answered; another goes on where a kernel took one down.

A worker is a process under the interpreter that has the kernels.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing, suppress
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import dsabench
from dsabench.errors import InputError, TrialFault
from dsabench.kernelbench.request import KernelBenchRequest, KernelPoint

_CRASHES = 20
_FIRST = ("device", "candidate", "ceilings", "asked", "begin")
DONE = ("check", "point")
"""Lines that end a point."""
_LINE = 1 << 22
_TAIL = 4000
_LAST = ("end", "mistake", "lost")
_FIELDS: dict[str, tuple[str, ...]] = {
    "device": ("name", "arch", "torch", "python", "packages"),
    "candidate": ("operator", "candidate", "does", "dtypes", "reason"),
    "asked": ("points", "known"),
    "begin": ("points",),
    "ceilings": ("tb_s", "tflop_s"),
    "doing": ("what",),
    "start": KernelPoint._fields,
    "check": (*KernelPoint._fields, "status"),
    "point": (*KernelPoint._fields, "status"),
    "left": ("points",),
    "mistake": ("message",),
    "lost": (),
    "end": (),
}
"""What a line has at least, by its `is`."""

WorkerLine = dict[str, object]
"""One line of a worker; `is` says what it is."""
Known = Callable[[WorkerLine], Awaitable[tuple[KernelPoint, ...]]]
"""Which points are done already where a worker runs, by what it says of its device."""


async def nothing_known(_device: WorkerLine) -> tuple[KernelPoint, ...]:
    """Nothing is done already."""
    return ()


class KnownPoints:
    """The points that no worker is asked for any more."""

    def __init__(self, known: Known) -> None:
        self._known: Known | None = known
        self._points: list[KernelPoint] = []

    async def on(self, device: WorkerLine) -> list[KernelPoint]:
        """All of them; what was known before is asked for once."""
        if self._known is not None:
            known, self._known = self._known, None
            self._points += await known(device)
        return self._points

    def add(self, point: KernelPoint) -> None:
        """One more."""
        self._points.append(point)


async def ask_worker(
    request: KernelBenchRequest,
    python: str | None,
    done: KnownPoints,
    variables: Mapping[str, str] = MappingProxyType({}),
) -> AsyncGenerator[WorkerLine, None]:
    """What one says; last comes `end`, `mistake`, `lost`, or `crash` with the point that ran. `variables` are added to its
    environment.

    Raises:
        InputError: there is no such interpreter.
        TrialFault: it could not start, or died outside a point.

    """
    interpreter = sys.executable if python is None else python
    process = await _start(interpreter, variables)
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    noise = _OutputTail()
    reader = asyncio.create_task(noise.read(process.stderr))
    running: KernelPoint | None = None
    try:
        await _tell(process.stdin, request.line())
        while line := await _line(process.stdout, request.patience_s):
            said = _parse_line(line)
            if said is None:
                noise.add(line)
                continue
            running = point_of(said) if said["is"] == "start" else None if said["is"] in DONE else running
            yield said
            if said["is"] in _LAST:
                return
            if said["is"] == "device":
                await _tell(process.stdin, json.dumps(await done.on(said)))
        async with asyncio.timeout(request.patience_s):
            reason = _end_of(await process.wait())
    except TimeoutError:
        reason = f"nothing was heard for {request.patience_s:g} s (--patience)"
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # a compiler that a kernel started goes too
        await process.wait()
        await reader
    reason += noise.last
    if running is None:
        raise TrialFault("exited", f"{interpreter}: {reason}", stage="load", log_tail=noise.text)
    yield {"is": "crash", **running._asdict(), "status": "crashed", "reason": reason}


def _parse_line(line: bytes) -> WorkerLine | None:
    """None where it is no line of a worker: an interpreter may be a script that says a word of its own."""
    try:
        said = json.loads(line)
    except (ValueError, RecursionError):
        return None
    kind = said.get("is") if isinstance(said, dict) else None
    return said if isinstance(kind, str) and kind in _FIELDS and said.keys() >= {*_FIELDS[kind]} else None


def _end_of(code: int) -> str:
    return (
        f"the worker was ended by signal {-code} ({signal.strsignal(-code)})"
        if code < 0
        else f"the worker ended with {code}"
    )


async def _tell(stream: asyncio.StreamWriter, line: str) -> None:
    """A worker that is gone already says so by its exit code."""
    stream.write((line + "\n").encode())
    with suppress(ConnectionError):
        await stream.drain()


async def _line(stream: asyncio.StreamReader, patience_s: float) -> bytes:
    """The next line, empty at the end. `asyncio.wait_for` would lose a Ctrl-C before Python 3.12."""
    async with asyncio.timeout(patience_s):
        try:
            return await stream.readline()
        except ValueError:  # longer than any line of a worker; what was read of it is thrown away
            return b"a line without end\n"


async def _start(python: str, variables: Mapping[str, str]) -> asyncio.subprocess.Process:
    """The interpreter runs this source tree's worker; of dsabench's dependencies it needs none but torch."""
    if not python:  # a variable of a shell that is not set; this process's own interpreter is not what was meant
        raise InputError("--kernel-python is empty")
    roots = [str(Path(dsabench.__file__).parent.parent), str(_kernels_root())]
    given = {**os.environ, **variables}
    path = os.pathsep.join([*roots, *filter(None, [given.get("PYTHONPATH")])])
    try:
        return await asyncio.create_subprocess_exec(
            *(python, "-P", "-m", "dsabench.kernelbench.worker"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={**given, "PYTHONPATH": path},
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


class _OutputTail:
    """The last of what a worker, its interpreter and its compilers print that is no answer."""

    def __init__(self) -> None:
        self._tail = b""

    def add(self, data: bytes) -> None:
        self._tail = (self._tail + data)[-_TAIL:]

    async def read(self, stream: asyncio.StreamReader) -> None:
        """Read as it comes, so that they never wait."""
        while chunk := await stream.read(1 << 16):
            self.add(chunk)

    @property
    def text(self) -> str:
        return self._tail.decode(errors="replace")

    @property
    def last(self) -> str:
        """Its last line, behind a colon; nothing where nothing was printed."""
        return f": {self.text.strip().splitlines()[-1]}" if self.text.strip() else ""


def point_of(said: WorkerLine) -> KernelPoint:
    """The point that a line is about."""
    return KernelPoint(*(str(said[name]) for name in KernelPoint._fields))


async def run_bench(
    request: KernelBenchRequest,
    python: str | None,
    known: Known = nothing_known,
    variables: Mapping[str, str] = MappingProxyType({}),
) -> AsyncGenerator[WorkerLine, None]:
    """Yield what workers say. A point whose worker died or fell silent comes with status `crashed`. `variables` are added to the
    environment of the workers.

    Raises:
        InputError: there is no such interpreter, or the request names what there is not.
        TrialFault: a worker could not start, or died outside a point.

    """
    asked, done = request, KnownPoints(known)
    deadline: float | None = None
    dead: KernelPoint | None = None
    for attempt in range(_CRASHES):
        async with aclosing(ask_worker(asked, python, done, variables)) as worker:
            async for heard in worker:
                if heard["is"] == "end":
                    return
                if heard["is"] == "mistake":
                    raise InputError(str(heard["message"]))
                if heard["is"] == "begin" and deadline is None and request.budget_s is not None:
                    deadline = time.monotonic() + request.budget_s
                said = heard
                if heard["is"] == "crash":
                    dead = point_of(heard)
                    said = {**heard, "is": "point" if request.action == "bench" else "check"}
                if said["is"] in DONE and _is_last(said, request):
                    done.add(point_of(said))
                if said["is"] != "lost" and (attempt == 0 or said["is"] not in _FIRST):
                    yield said
        if deadline is not None:
            asked = replace(request, budget_s=max(0.0, deadline - time.monotonic()))
    raise TrialFault("exited", f"kernels took {_CRASHES} workers down; the last at {dead}", stage="load")


def _is_last(said: WorkerLine, request: KernelBenchRequest) -> bool:
    """Whether nothing more is asked of the point: a check on several seeds says it once for each."""
    return said.get("seed") in (None, request.seed + request.seeds - 1)
