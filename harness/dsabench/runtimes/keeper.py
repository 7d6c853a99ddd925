"""Owns one server process and all that it starts, and outlives none of it.

Run by path, with the standard library alone: `python -I -S keeper.py`. It is two processes. The *keeper* starts the
server, listens, and ends it. The *guard*, its parent, sleeps until the keeper is gone, ends what the keeper could not,
and says so. Both are subreapers, so whatever the server leaves behind, other sessions included, becomes their child:
"no children left" is the kernel's own proof. What happens when somebody is killed with SIGKILL:

    dsabench   the pipe on stdin ends (and its pidfd fires): the keeper stops the server
    guard      a pipe between the two ends: the keeper stops the server
    keeper     the server dies at once (PDEATHSIG); what it had started falls to the guard, which kills it
    both       the server dies at once; what it had started is found by its environment (`orphans.py`)

In, one line of JSON each: first the job {argv, env, cwd, log, cores, stop_timeout_s, parent, keep_fds,
term_all}, later {"stop": SECONDS}. Out, one line of JSON each, with `event`:

    started  pid          the program is running (exec has worked)
    failed   step, errno  it could not be started: step is log, cwd, cores or exec
    exited   code|signal  the server itself ended (not told when it took our SIGKILL)
    left     pids         these survive SIGKILL so far (sleeping in a driver, or somebody else's)
    gone                  nothing is left; the last line
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import signal
import sys
import time
from typing import Any, NoReturn

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
ENDED_BY_TERMINAL = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
GRACE_S = 2.0
"""From TERM to KILL for what is left once the server itself has ended."""


def main() -> None:
    """Become guard and keeper."""
    for number in ENDED_BY_TERMINAL:
        signal.signal(number, signal.SIG_IGN)
    os.chdir("/")
    _prctl(PR_SET_CHILD_SUBREAPER, 1)
    guard_alive, guard_holds = os.pipe()
    if os.fork():
        os.close(guard_alive)
        _guard()
    else:
        os.close(guard_holds)
        os.setsid()  # a signal to the guard's process group does not reach the keeper
        _prctl(PR_SET_CHILD_SUBREAPER, 1)
        _Keeper(guard_alive).run()


def _guard() -> None:
    os.close(0)
    with contextlib.suppress(ChildProcessError):
        os.waitpid(-1, 0)  # only the keeper can be reaped here while it lives; what it leaves comes after it
    hunt()
    tell("gone")


class _Keeper:
    """Starts the job, waits for a reason to end it, ends it."""

    def __init__(self, guard_alive: int) -> None:
        self.guard_alive = guard_alive
        self.term_all = True
        self.child: int | None = None
        """The server's pid while it has not been reaped; so long its number, and its group's, cannot be reused."""
        self.heard = b""
        self.bell, ring = os.pipe()
        for end in (self.bell, ring):
            os.set_blocking(end, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(ring, warn_on_full_buffer=False)
        self.poll = select.poll()
        for fd in (0, guard_alive, self.bell):
            self.poll.register(fd, select.POLLIN)

    def run(self) -> None:
        """Do the job. Without one (end of file before it came) there is nothing to do."""
        while (job := self._command()) is None:
            if not self._sleep():
                return
        for fd in job["keep_fds"]:
            os.set_inheritable(fd, False)  # locks that last as long as the keeper does, and are not the server's
        try:
            parent = os.pidfd_open(job["parent"])
        except (OSError, AttributeError):  # already gone, which the pipe tells as well, or an old kernel
            pass
        else:
            self.poll.register(parent, select.POLLIN)  # a forked copy of dsabench may hold the pipe open
        self.term_all = job["term_all"]
        self.child = start(job)
        if self.child is not None:
            tell("started", pid=self.child)
        timeout_s = self._until_reason_to_end(job["stop_timeout_s"])
        self._end(timeout_s)
        hunt()
        if self._guard_is_gone():
            tell("gone")

    def _until_reason_to_end(self, stop_timeout_s: float) -> float:
        """Sleep until told to stop, left alone, or the server ended. Return the seconds from TERM to KILL."""
        attended = True
        while self.child is not None:
            command = self._command()
            if command is not None:
                return float(command["stop"])
            if not attended:
                break
            attended = self._sleep()
            self._reap()
        return stop_timeout_s

    def _end(self, timeout_s: float) -> None:
        """TERM to the server, and to its group where it is told so; when the server has ended, TERM to what is left."""
        deadline = time.monotonic() + timeout_s
        if self.child is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                (os.killpg if self.term_all else os.kill)(self.child, signal.SIGTERM)
                os.killpg(self.child, signal.SIGCONT)  # a stopped process hears TERM only then
        while self.child is not None and time.monotonic() < deadline:
            self._doze(deadline)
        deadline = min(deadline, time.monotonic() + GRACE_S)
        if self.child is None:
            for process in descendants():
                kill(process, signal.SIGTERM)
        while not reap() and time.monotonic() < deadline:
            self._doze(deadline)

    def _doze(self, deadline: float) -> None:
        """Until a child ended, or 50 ms at most: descendants that are not ours yet ring no bell."""
        select.select([self.bell], [], [], max(0.0, min(0.05, deadline - time.monotonic())))
        with contextlib.suppress(BlockingIOError):
            os.read(self.bell, 4096)
        self._reap()

    def _reap(self) -> None:
        """Collect every child that ended; tell when it was the server."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                self.child = None
                return
            if pid == 0:
                return
            if pid == self.child:
                self.child = None
                code = os.waitstatus_to_exitcode(status)
                tell("exited", **({"signal": -code} if code < 0 else {"code": code}))

    def _sleep(self) -> bool:
        """Until something happens. False when dsabench or the guard is gone."""
        attended = True
        for fd, _ in self.poll.poll():
            if fd == 0:
                data = os.read(0, 65536)
                self.heard += data
                attended = attended and bool(data)
            elif fd == self.bell:
                os.read(fd, 4096)
            else:
                attended = False
        return attended

    def _command(self) -> Any:
        """The next whole line, parsed; None while there is none."""
        line, newline, rest = self.heard.partition(b"\n")
        if not newline:
            return None
        self.heard = rest
        return json.loads(line)

    def _guard_is_gone(self) -> bool:
        return bool(select.select([self.guard_alive], [], [], 0)[0])


def start(job: dict[str, Any]) -> int | None:
    """Start the job's program in its own session. Return its pid, or tell why not and return None."""
    report, reported = os.pipe()
    keeper = os.getpid()
    pid = os.fork()
    if pid == 0:
        _become(job, keeper, reported)
    os.close(reported)
    with os.fdopen(report, "rb") as pipe:
        complaint = pipe.read()  # ends when exec closes the other end
    if not complaint:
        return pid
    os.waitpid(pid, 0)
    step, _, errno = complaint.decode().partition(" ")
    tell("failed", step=step, errno=int(errno))
    return None


def _become(job: dict[str, Any], keeper: int, reported: int) -> NoReturn:
    """In the child: turn into the program. On any failure write the step and errno, and end."""
    step = "exec"
    try:
        os.setsid()
        _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != keeper:  # it died before the line above
            os._exit(1)
        signal.set_wakeup_fd(-1)
        for number in (*ENDED_BY_TERMINAL, signal.SIGCHLD, signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
        step = "cwd"
        os.chdir(job["cwd"])
        step = "log"
        log = os.open(job["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(log, 1)
        os.dup2(log, 2)
        step = "cores"
        if job["cores"]:
            os.sched_setaffinity(0, job["cores"])
        step = "exec"
        os.execvpe(job["argv"][0], job["argv"], job["env"])  # noqa: S606 - no shell is the point
    except OSError as error:
        os.write(reported, f"{step} {error.errno}".encode())
    os._exit(127)


def hunt() -> None:
    """Kill every descendant, whatever session it hides in, until the kernel says that there is no child left."""
    pause_s, begun = 0.005, time.monotonic()
    while not reap():
        for process in _frozen():
            kill(process, signal.SIGKILL)
        time.sleep(pause_s)
        pause_s = min(pause_s * 2, 0.5)
        if time.monotonic() - begun > 2.0 and (left := descendants()):
            tell("left", pids=[pid for pid, _ in left])


def reap() -> bool:
    """Collect the children that ended. True when none is left, and so, to a subreaper, no descendant either."""
    while True:
        try:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                return False
        except ChildProcessError:
            return True


def _frozen() -> set[tuple[int, int]]:
    """Every descendant, stopped first: a stopped process forks no more, so a few looks find them all."""
    found: set[tuple[int, int]] = set()
    for _ in range(50):
        fresh = set(descendants()) - found
        if not fresh:
            break
        for process in fresh:
            kill(process, signal.SIGSTOP)
        found |= fresh
    return found


def descendants() -> list[tuple[int, int]]:
    """(pid, start time) of all processes below this one that have not ended."""
    below: dict[int, list[tuple[int, int, bytes]]] = {}
    for entry in os.scandir("/proc"):
        if entry.name.isdigit() and (stat := _stat(int(entry.name))):
            state, parent, started = stat
            below.setdefault(parent, []).append((int(entry.name), started, state))
    found, level = [], [os.getpid()]
    while level:
        children = [child for parent in level for child in below.get(parent, ())]
        found += [(pid, started) for pid, started, state in children if state not in b"ZX"]
        level = [pid for pid, _, _ in children]
    return found


def kill(process: tuple[int, int], number: int) -> None:
    """Signal that very process, and not one that has got its number meanwhile."""
    pid, started = process
    with contextlib.suppress(ProcessLookupError, PermissionError):
        try:
            handle = os.pidfd_open(pid)
        except (AttributeError, NotImplementedError):
            os.kill(pid, number)
            return
        try:
            if (stat := _stat(pid)) and stat[2] == started:
                signal.pidfd_send_signal(handle, number)
        finally:
            os.close(handle)


def _stat(pid: int) -> tuple[bytes, int, int] | None:
    """State, parent and start time (clock ticks since boot) of a process; None when it is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123 - pathlib costs start-up time
            text = file.read()
    except OSError:
        return None
    fields = text[text.rindex(b")") + 2 :].split()
    return fields[0], int(fields[1]), int(fields[19])


def _prctl(option: int, value: int) -> None:
    ctypes.CDLL(None).prctl(option, ctypes.c_ulong(value), 0, 0, 0)


def tell(event: str, **facts: Any) -> None:
    """One line on stdout; nobody may be left to read it."""
    with contextlib.suppress(OSError):
        os.write(1, json.dumps({"event": event, **facts}).encode() + b"\n")


if __name__ == "__main__":
    main()
    sys.exit(0)
