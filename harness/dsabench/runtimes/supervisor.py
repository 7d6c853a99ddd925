"""Runs one command under a keeper (`keeper.py`): nothing of it outlives the context, nor this process."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from dsabench.errors import TrialFault
from dsabench.model.record import Stage
from dsabench.runtimes.clients import fault_of_client
from dsabench.runtimes.faults import Ending, fault_of_ending, fault_of_start, raise_or_note, read_tail
from dsabench.runtimes.orphans import MARK, kill_marked

_KEEPER = Path(__file__).with_name("keeper.py")
_GRACE_S = 15.0
"""On top of the stop timeout: for what is left after the server, for SIGKILL to work, and for a slow machine."""
_VMSTAT = Path("/proc/vmstat")


@dataclass(frozen=True, slots=True)
class Command:
    """One program to run. No shell; `argv[0]` is looked up on the child's PATH."""

    argv: tuple[str, ...]
    cwd: Path
    log: Path
    """stdout and stderr are appended to it."""
    boot: str
    """uuid; several commands of one boot share it."""
    env: Mapping[str, str] = field(default_factory=dict)
    """On top of the inherited environment. The child's PYTHONPATH is the one given here, or none."""
    cores: tuple[int, ...] = ()
    stop_timeout_s: float = 20.0
    """From TERM to KILL."""
    held_fds: tuple[int, ...] = ()
    """Descriptors that the keeper holds open, but not the program."""
    term_all: bool = True
    """TERM to the program's whole process group; False leaves it to the program to end its children in good order."""
    lifeline: bool = False
    """The program is a client (ssh, srun, docker run); its stdin's end tells the far side to stop (`lifeline.py`)."""

    @property
    def environment(self) -> dict[str, str]:
        """The whole environment of the program."""
        inherited = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        return inherited | {"PYTHONSAFEPATH": "1", "PYTHONUNBUFFERED": "1"} | dict(self.env) | {MARK: self.boot}


class Process:
    """`async with Process(command) as process:` runs the command for as long as the context is open.

    Entering raises TrialFault where the program cannot be started; leaving raises it (not_gone) where something of it
    survives. Cancelled while leaving, or killed, this process leaves the rest of the work to the keeper.
    """

    def __init__(self, command: Command) -> None:
        self.command = command
        self.pid: int | None = None
        """The program's; its process group and session have the same number."""
        self._log_start = 0
        self._oom_kills = 0
        self._left: list[int] = []
        self._gone = False
        self._cut = False

    async def __aenter__(self) -> Self:
        command = self.command
        with suppress(OSError):  # a new log starts at 0
            self._log_start = command.log.stat().st_size
        self._oom_kills = _oom_kills()
        loop = asyncio.get_running_loop()
        self._started: asyncio.Future[TrialFault | None] = loop.create_future()
        self._ended: asyncio.Future[Ending] = loop.create_future()
        self._keeper = _spawn_keeper(command)
        self._listening = asyncio.create_task(self._listen())
        async with AsyncExitStack() as stack:
            stack.push_async_exit(self)
            await self._send(_job(command))
            fault = await asyncio.shield(self._started)
            if fault is not None:
                raise fault
            stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        left = await self._stop()
        if left:
            words = f"still there after the stop: process {', '.join(map(str, left))}"
            raise_or_note(TrialFault("not_gone", words, stage="stop", log_tail=self.log_tail()), error)
        elif self._cut:
            client = Path(self.command.argv[0]).name
            words = f"{client} did not say that the far side ended; look there for {MARK}={self.command.boot}"
            raise_or_note(TrialFault("not_gone", words, stage="stop", log_tail=self.log_tail()), error)

    @property
    def keeper_pid(self) -> int:
        """The guard's; the keeper proper is its child."""
        return self._keeper.pid

    def log_tail(self) -> str:
        """The last lines of what this command wrote, with secrets left out."""
        return read_tail(self.command.log, start=self._log_start, env=self.command.environment)

    async def died(self, stage: Stage) -> None:
        """Return never while the program runs.

        Raises:
            TrialFault: it ended without being asked to.

        """
        ending = await asyncio.shield(self._ended)
        raise self._fault(ending, stage)

    def _fault(self, ending: Ending, stage: Stage) -> TrialFault:
        name = fault_of_client if self.command.lifeline else fault_of_ending
        return name(ending, self.log_tail(), stage)

    async def _send(self, message: object) -> None:
        """One line to the keeper, from a thread: an environment can be larger than the pipe."""
        assert self._keeper.stdin is not None
        with suppress(OSError):  # it is gone, which its own pipe tells as well
            await asyncio.to_thread(self._keeper.stdin.write, json.dumps(message).encode() + b"\n")

    async def _stop(self) -> list[int]:
        """End the program, wait until nothing is left of it, and return the pids of what is."""
        timeout_s = self.command.stop_timeout_s
        assert self._keeper.stdin is not None
        try:
            await self._send({"stop": timeout_s})
            async with asyncio.timeout(timeout_s + _GRACE_S):
                await asyncio.shield(self._listening)
                await asyncio.to_thread(self._keeper.wait)
        except TimeoutError:
            return self._left or [self.keeper_pid]
        finally:
            with suppress(OSError):
                self._keeper.stdin.close()
            self._listening.cancel()
        if self._gone:
            return []
        return await asyncio.to_thread(kill_marked, self.command.boot)

    async def _listen(self) -> None:
        """Take in what the keeper tells, to its end."""
        complaint = ""
        reader = asyncio.StreamReader()
        loop = asyncio.get_running_loop()
        pipe, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), self._keeper.stdout)
        try:
            async for line in reader:
                try:
                    self._hear(json.loads(line))
                except json.JSONDecodeError:  # the end of a traceback
                    complaint = line.decode(errors="replace").strip()
        finally:
            pipe.close()
        self._settle(Ending(complaint=complaint))

    def _hear(self, event: dict[str, object]) -> None:
        match event:
            case {"event": "started", "pid": int(pid)}:
                self.pid = pid
                self._started.set_result(None)
            case {"event": "failed", "step": str(step), "errno": int(number)}:
                self._started.set_result(fault_of_start(step, number, self.command.argv[0]))
            case {"event": "abandoned"}:
                self._settle(Ending())
            case {"event": "exited", "code": int(code)}:
                self._settle(Ending(code=code))
            case {"event": "exited", "signal": int(number)}:
                self._settle(Ending(signal=number, oom_killed=_oom_kills() > self._oom_kills))
            case {"event": "cut"}:
                self._cut = True
            case {"event": "left", "pids": list(pids)}:
                self._left = pids
            case {"event": "gone"}:
                self._gone = True
                self._settle(Ending())

    def _settle(self, ending: Ending) -> None:
        """The first word about the end counts."""
        if not self._started.done():
            self._started.set_result(self._fault(ending, "boot"))
        if not self._ended.done():
            self._ended.set_result(ending)


def _spawn_keeper(command: Command) -> subprocess.Popen[bytes]:
    """Plain Popen: asyncio's own kills its child when a loop is closed early, and the keeper must not be killed then."""
    return subprocess.Popen(
        [sys.executable, "-I", "-S", str(_KEEPER)],
        bufsize=0,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        pass_fds=command.held_fds,
        start_new_session=True,
    )


def _job(command: Command) -> dict[str, object]:
    return {
        "argv": command.argv,
        "env": command.environment,
        "cwd": str(command.cwd.absolute()),
        "log": str(command.log.absolute()),
        "cores": command.cores,
        "stop_timeout_s": command.stop_timeout_s,
        "parent": os.getpid(),
        "keep_fds": command.held_fds,
        "term_all": command.term_all,
        "lifeline": command.lifeline,
    }


def _oom_kills() -> int:
    """How many processes the kernel has killed for want of memory since it booted, control groups included."""
    with suppress(OSError):
        for line in _VMSTAT.read_text().splitlines():
            name, _, count = line.partition(" ")
            if name == "oom_kill":
                return int(count)
    return 0
