"""Owns one server process and all that it starts, and outlives none of it.

Run by path, with the standard library alone: `python -I -S keeper.py`. It is two processes. The *keeper* starts the
server, listens, and ends it. The *guard*, its parent, sleeps until the keeper is gone, ends what the keeper could not,
and says so. Both are subreapers, so whatever the server leaves behind, other sessions included, becomes their child:
"no children left" is the kernel's own proof. What happens when somebody is killed with SIGKILL:

    dsabench   the pipe on stdin ends (and its pidfd fires): the keeper stops the server
    guard      a pipe between the two ends: the keeper stops the server
    keeper     the server dies at once (PDEATHSIG); what it had started falls to the guard: TERM, 2 s later KILL
    both       the server dies at once; what it had started is found by its environment (`orphans.py`)

In, one line of JSON each: first the job {argv, env, cwd, log, cores, stop_timeout_s, parent, keep_fds,
term_all, lifeline}, later {"stop": SECONDS}. Out, one line of JSON each, with `event`:

    started  pid          the program is running (exec has worked)
    failed   step, errno  it could not be started: step is log, cwd, cores or exec
    exited   code|signal  the server itself ended (not told when it took our SIGKILL)
    abandoned             the guard is gone, so the keeper ends the server: it did not end by itself
    cut                   the program, a client such as ssh, did not end when its lifeline did: what it started is unseen
    left     pids         these survive SIGKILL so far (sleeping in a driver, or somebody else's)
    gone                  nothing is left; the last line

Where the program is a client (ssh, srun, docker run) this file runs on the far side too (`lifeline.py`): it has its job in
the arguments, and a lifeline as stdin whose end is the reason to stop. Its exit code is the server's.
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
CANNOT = 125
"""Exit code on the far side when nothing was started, as engines of containers have it."""
END = b"\x04"
"""The last byte of a lifeline; a terminal makes the end of a file of it."""
FAR_GRACE_S = 5.0
"""On top of the far side's own time, for what is left there and for the way back."""


def main(far: dict[str, Any] | None) -> int:
    """Become guard and keeper, here or on the far side. Return the exit code."""
    _on_terminal(signal.SIG_IGN)
    if far is None:
        os.chdir("/")
    else:
        if far["machine"] not in {None, machine()}:
            return say(f"{os.uname().nodename} is another machine: {far['elsewhere']}")
        far |= {"env": {**os.environ, **far["env"]}, "parent": os.getppid(), "output": os.dup(1)}
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # nobody listens to events there
    _prctl(PR_SET_CHILD_SUBREAPER, 1)
    guard_alive, guard_holds = os.pipe()
    if keeper := os.fork():
        os.close(guard_alive)
        return _guard(keeper, guard_holds, far=far is not None)
    os.close(guard_holds)
    os.setsid()  # a signal to the guard's process group does not reach the keeper
    _prctl(PR_SET_CHILD_SUBREAPER, 1)
    return _Keeper(guard_alive, far).run()


def _guard(keeper: int, holds: int, *, far: bool) -> int:
    """Wait for the keeper. On the far side a signal to the guard lets go of the pipe by which the keeper knows it."""
    os.close(0)

    def let_go(*_: object) -> None:
        _on_terminal(signal.SIG_IGN)
        os.close(holds)

    if far:
        _on_terminal(let_go)
    status = os.waitpid(keeper, 0)[1]  # what it leaves comes after it
    hunt(GRACE_S if status else 0.0)
    tell("gone")
    return os.waitstatus_to_exitcode(status) % 256


def _on_terminal(action: Any) -> None:
    for number in ENDED_BY_TERMINAL:
        signal.signal(number, action)


def machine() -> str | None:
    """What two processes have in common that can meet on loopback: this boot of a kernel, and the network's namespace."""
    with contextlib.suppress(OSError), open("/proc/sys/kernel/random/boot_id", "rb") as file:  # noqa: PTH123
        return f"{file.read()!r} {os.readlink('/proc/self/ns/net')}"  # noqa: PTH115
    return None


class _Keeper:
    """Starts the job, waits for a reason to end it, ends it."""

    def __init__(self, guard_alive: int, far: dict[str, Any] | None) -> None:
        self.guard_alive = guard_alive
        self.far = far
        self.tied = False
        """On the far side: whether the lifeline reaches it, as it does not through `ssh -n`."""
        self.lifeline: int | None = None
        self.code = CANNOT
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

    def run(self) -> int:
        """Do the job; return the server's exit code. Without one (end of file before it came) there is nothing to do."""
        while (job := self.far or self._command()) is None:
            if not self._sleep():
                return 0
        for fd in job["keep_fds"]:
            os.set_inheritable(fd, False)  # locks that last as long as the keeper does, and are not the server's
        # A forked copy of dsabench may hold the pipe open. An old kernel has no such handles.
        with contextlib.suppress(OSError, AttributeError):
            self.poll.register(os.pidfd_open(job["parent"]), select.POLLIN)
        self.term_all = job["term_all"]
        feed = None
        if job["lifeline"]:
            feed, self.lifeline = os.pipe()
            os.write(self.lifeline, b"\n")  # shows the far side that stdin reaches it
        self.child = start(job, feed)
        if self.child is not None:
            tell("started", pid=self.child)
        timeout_s = self._until_reason_to_end(job["stop_timeout_s"])
        self._end(timeout_s if self.lifeline is None else self._let_go(self.lifeline, timeout_s))
        hunt()
        if self._guard_is_gone():
            tell("gone")
        return self.code

    def _until_reason_to_end(self, stop_timeout_s: float) -> float:
        """Sleep until told to stop, left alone, or the server ended. Return the seconds from TERM to KILL."""
        attended = True
        while self.child is not None:
            command = self._command()
            if command is not None:
                return float(command["stop"])
            if not attended:
                tell("abandoned")
                break
            attended = self._sleep()
            self._reap()
        return stop_timeout_s

    def _let_go(self, lifeline: int, timeout_s: float) -> float:
        """End it, and wait for the client: it ends when the far side has. Return the client's own time to end."""
        with contextlib.suppress(OSError):
            os.write(lifeline, END)  # `ssh -tt` does not pass the end of stdin on
        os.close(lifeline)
        deadline = time.monotonic() + timeout_s + FAR_GRACE_S
        lost = self.child is None  # the engine's own monitor still has the container to end and to clear away
        while (not reap() if lost else self.child is not None) and time.monotonic() < deadline:
            self._doze(deadline)
        if self.child is not None:
            tell("cut")
        return GRACE_S

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
                self.code = code if code >= 0 else 128 - code  # as a shell has it
                tell("exited", **({"signal": -code} if code < 0 else {"code": code}))

    def _sleep(self) -> bool:
        """Until something happens. False when dsabench or the guard is gone."""
        attended = True
        for fd, _ in self.poll.poll():
            if fd == 0 and self.far is not None:
                attended = self._feel_lifeline() and attended
            elif fd == 0:
                data = os.read(0, 65536)
                self.heard += data
                attended = attended and bool(data)
            elif fd == self.bell:
                os.read(fd, 4096)
            else:
                attended = False
        return attended

    def _feel_lifeline(self) -> bool:
        """False when it was there and is not any more."""
        data = b""
        with contextlib.suppress(OSError):  # a terminal whose other end was closed
            data = os.read(0, 65536)
        if not data and not self.tied:
            self.poll.unregister(0)
            return bool(say("stdin does not reach this side, which will outlive dsabench"))
        self.tied = True
        return bool(data) and END not in data

    def _command(self) -> Any:
        """The next whole line, parsed; None while there is none."""
        line, newline, rest = self.heard.partition(b"\n")
        if not newline:
            return None
        self.heard = rest
        return json.loads(line)

    def _guard_is_gone(self) -> bool:
        return bool(select.select([self.guard_alive], [], [], 0)[0])


def start(job: dict[str, Any], feed: int | None) -> int | None:
    """Start the job's program in its own session, `feed` as its stdin. Return its pid, or tell why not and return None."""
    report, reported = os.pipe()
    keeper = os.getpid()
    pid = os.fork()
    if pid == 0:
        _become(job, keeper, reported, feed)
    os.close(reported)
    if feed is not None:
        os.close(feed)
    with os.fdopen(report, "rb") as pipe:
        complaint = pipe.read()  # ends when exec closes the other end
    if not complaint:
        return pid
    os.waitpid(pid, 0)
    step, _, errno = complaint.decode().partition(" ")
    tell("failed", step=step, errno=int(errno))
    if job["log"] is None:
        say(f"cannot run {job['argv'][0]}: {os.strerror(int(errno))}")
    return None


def _become(job: dict[str, Any], keeper: int, reported: int, feed: int | None) -> NoReturn:
    """In the child: turn into the program. On any failure write the step and errno, and end."""
    step = "exec"
    try:
        os.setsid()
        _prctl(PR_SET_PDEATHSIG, signal.SIGKILL if feed is None else signal.SIGTERM)  # a client takes its leave
        if os.getppid() != keeper:  # it died before the line above
            os._exit(1)
        signal.set_wakeup_fd(-1)
        for number in (*ENDED_BY_TERMINAL, signal.SIGCHLD, signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
        step = "cwd"
        os.chdir(job["cwd"])
        step = "log"
        os.dup2(os.open(os.devnull, os.O_RDONLY) if feed is None else feed, 0)
        if job["log"] is None:
            os.dup2(job["output"], 1)
        else:
            log = os.open(job["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
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


def hunt(grace_s: float = 0.0) -> None:
    """Kill every descendant, whatever session it hides in, until the kernel says that there is no child left."""
    pause_s, begun = 0.005, time.monotonic()
    for process in descendants() if grace_s else ():
        kill(process, signal.SIGTERM)
    while not reap():
        for process in _frozen() if time.monotonic() - begun >= grace_s else ():
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
    handle = None
    with contextlib.suppress(AttributeError, OSError):  # an old kernel, or a container that forbids it
        handle = os.pidfd_open(pid)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if (stat := _stat(pid)) and stat[2] == started:
            os.kill(pid, number) if handle is None else signal.pidfd_send_signal(handle, number)
    if handle is not None:
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


def say(text: str) -> int:
    """One line on the far side's stderr, which is the server's log here. Returns `CANNOT`."""
    with contextlib.suppress(OSError):
        os.write(2, f"dsabench: {text}\n".encode())
    return CANNOT


if __name__ == "__main__":
    sys.exit(main(json.loads(sys.argv[1]) if len(sys.argv) > 1 else None))
