from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from pathlib import Path

import psutil
import pytest

from dsabench.errors import TrialFault
from dsabench.runtimes import supervisor
from dsabench.runtimes.supervisor import Command, Process
from unit.workshop import STUBBORN, Workshop

FAMILY = f"""
child({STUBBORN!r}, start_new_session=True)
child("import os, time; os.fork() and os._exit(0); time.sleep(1000)", start_new_session=True)
child({STUBBORN!r})
"""
"""Grandchildren: one in another session that ignores TERM, one orphaned in another session, one stubborn in ours."""
POLITE = "signal.signal(signal.SIGTERM, lambda *_: (print('bye'), sys.exit(0))); sys.stdout.write('up\\n'); hang()"
DEAF = "signal.signal(signal.SIGTERM, signal.SIG_IGN); sys.stdout.write('up\\n'); hang()"
WHOLE_FAMILY = 6
"""These, the program, and its two keepers."""


async def fault_of(command: Command) -> TrialFault:
    with pytest.raises(TrialFault) as caught:
        async with Process(command) as process:
            await asyncio.wait_for(process.died("load"), 60)
    return caught.value


async def said(process: Process, text: str) -> None:
    while text not in process.log_tail():
        await asyncio.sleep(0.01)


async def test_ends_politely(workshop: Workshop) -> None:
    async with Process(workshop.command(POLITE)) as process:
        await said(process, "up")
        assert process.pid in {p.pid for p in workshop.alive()}
        assert os.getsid(process.pid or 0) == process.pid
    assert process.log_tail() == "up\nbye"


async def test_kills_what_ignores_term(workshop: Workshop) -> None:
    async with Process(workshop.command(DEAF, stop_timeout_s=0.3)) as process:
        await said(process, "up")
        started = time.monotonic()
    assert time.monotonic() - started > 0.2
    assert not workshop.alive()


async def test_stopped_program_hears_term(workshop: Workshop) -> None:
    async with Process(workshop.command(POLITE)) as process:
        await said(process, "up")
        os.kill(process.pid or 0, signal.SIGSTOP)
    assert process.log_tail() == "up\nbye"


@pytest.mark.timing
@pytest.mark.parametrize(
    ("body", "is_stopped", "limit_s"), [("POLITE", False, 2), ("POLITE", True, 3), ("DEAF", False, 3)]
)
async def test_it_ends_soon(workshop: Workshop, body: str, *, is_stopped: bool, limit_s: float) -> None:
    command = workshop.command({"POLITE": POLITE, "DEAF": DEAF}[body], stop_timeout_s=0.3 if body == "DEAF" else 5.0)
    async with Process(command) as process:
        await said(process, "up")
        if is_stopped:
            os.kill(process.pid or 0, signal.SIGSTOP)
        started = time.monotonic()
    assert time.monotonic() - started < limit_s


@pytest.mark.slow
async def test_hunts_every_descendant(workshop: Workshop) -> None:
    async with Process(workshop.command(FAMILY + "print('up'); hang()", stop_timeout_s=1.0)) as process:
        await said(process, "up")
        workshop.wait(lambda: len(workshop.alive()) >= WHOLE_FAMILY)
    assert not workshop.alive()


@pytest.mark.slow
@pytest.mark.timing
async def test_crash_takes_the_family_along(workshop: Workshop) -> None:
    started = time.monotonic()
    fault = await fault_of(workshop.command(FAMILY + "print('boom'); os._exit(3)"))
    assert (fault.kind, fault.stage, fault.transient) == ("exited", "load", False)
    assert fault.message == "exited with code 3: boom"
    assert not workshop.alive()
    assert time.monotonic() - started < 8


@pytest.mark.slow
async def test_fork_bomb(workshop: Workshop) -> None:
    bomb = """
print("up")
until = time.monotonic() + 30
while time.monotonic() < until:
    if os.fork() == 0:
        os.setsid()
        if os.fork():
            os._exit(0)
    time.sleep(0.05)
"""
    async with Process(workshop.command(bomb, stop_timeout_s=0.1)) as process:
        await said(process, "up")
        workshop.wait(lambda: len(workshop.alive()) > 20)
    assert not workshop.alive()


async def test_exits_at_once(workshop: Workshop) -> None:
    for _ in range(5):
        fault = await fault_of(workshop.command("", argv=("true",)))
        assert fault.message == "exited with code 0"


async def test_refused_arguments(workshop: Workshop) -> None:
    body = "print('usage: x'); print('x: error: argument --kv: invalid choice: 3', file=sys.stderr); sys.exit(2)"
    fault = await fault_of(workshop.command(body))
    assert (fault.kind, fault.message) == ("illegal_config", "argument --kv: invalid choice: 3")
    assert fault.log_tail.startswith("usage: x")


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (("/nowhere/python",), "cannot run /nowhere/python: No such file or directory"),
        (("no-such-program-anywhere",), "cannot run no-such-program-anywhere: No such file or directory"),
        (("/dev/null",), "cannot run /dev/null: Permission denied"),
    ],
)
async def test_cannot_run(workshop: Workshop, argv: tuple[str, ...], message: str) -> None:
    fault = await fault_of(workshop.command("", argv=argv))
    assert (fault.kind, fault.stage, fault.message) == ("missing_file", "boot", message)


async def test_not_a_program(workshop: Workshop) -> None:
    file = workshop.folder / "garbage"
    file.write_bytes(b"\x00\x01garbage")
    file.chmod(0o755)
    fault = await fault_of(workshop.command("", argv=(str(file),)))
    assert (fault.kind, fault.message) == ("missing_file", f"cannot run {file}: Exec format error")


async def test_missing_script_and_folder(workshop: Workshop) -> None:
    fault = await fault_of(workshop.command("", argv=(sys.executable, "/nowhere/server.py")))
    assert fault.kind == "missing_file"
    assert "can't open file" in fault.message
    fault = await fault_of(workshop.command("", cwd=workshop.folder / "nowhere"))
    assert (fault.kind, fault.stage) == ("missing_file", "boot")


async def test_impossible_cores(workshop: Workshop) -> None:
    fault = await fault_of(workshop.command("hang()", cores=(100_000,)))
    assert (fault.kind, fault.stage) == ("illegal_config", "boot")


async def test_cores_reach_grandchildren(workshop: Workshop) -> None:
    core = min(os.sched_getaffinity(0))
    body = "subprocess.run(['grep', 'Cpus_allowed_list', '/proc/self/status']); hang()"
    async with Process(workshop.command(body, cores=(core,))) as process:
        await said(process, f"Cpus_allowed_list:\t{core}")


@pytest.mark.parametrize(
    ("number", "kind", "transient"),
    [(signal.SIGKILL, "killed", True), (signal.SIGTERM, "killed", True), (signal.SIGSEGV, "exited", False)],
)
async def test_killed_from_outside(workshop: Workshop, number: signal.Signals, kind: str, transient: bool) -> None:
    async def shoot() -> None:
        async with Process(workshop.command("print('up'); hang()")) as process:
            await said(process, "up")
            os.kill(process.pid or 0, number)
            await asyncio.wait_for(process.died("load"), 60)

    with pytest.raises(TrialFault, match=number.name) as caught:
        await shoot()
    assert (caught.value.kind, caught.value.transient) == (kind, transient)


@pytest.mark.slow
@pytest.mark.parametrize("which", ["guard", "keeper", "both"])
async def test_keeper_killed(workshop: Workshop, which: str) -> None:
    """Whichever of the two is shot, the server and all that it started are gone when the context is left."""

    async def shoot() -> None:
        async with Process(workshop.command(FAMILY + "print('up'); hang()", stop_timeout_s=1.0)) as process:
            await said(process, "up")
            workshop.wait(lambda: len(workshop.alive()) >= WHOLE_FAMILY)
            guard = psutil.Process(process.keeper_pid)
            (keeper,) = guard.children()
            targets = {"guard": [guard], "keeper": [keeper], "both": [guard, keeper]}[which]
            for target in targets:
                target.suspend()
            for target in targets:
                target.kill()
            await asyncio.wait_for(process.died("load"), 60)

    with pytest.raises(TrialFault) as caught:
        await shoot()
    assert (caught.value.kind, caught.value.transient) == ("killed", True)
    assert not workshop.alive()


async def test_a_healthy_server_whose_guard_is_killed_may_be_tried_again(workshop: Workshop) -> None:
    """The keeper then ends the server politely: that it exits with 0 says nothing of the server."""
    async with Process(workshop.command(POLITE)) as process:
        await said(process, "up")
        psutil.Process(process.keeper_pid).kill()
        with pytest.raises(TrialFault) as caught:
            await asyncio.wait_for(process.died("load"), 60)
    assert (caught.value.kind, caught.value.transient) == ("killed", True)
    assert caught.value.message == "its keeper was killed from outside"


async def test_keeper_ignores_the_terminal(workshop: Workshop) -> None:
    async with Process(workshop.command("print('up'); hang()")) as process:
        await said(process, "up")
        (keeper,) = psutil.Process(process.keeper_pid).children()
        for pid in (process.keeper_pid, keeper.pid):
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
                os.kill(pid, number)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(process.died("load"), 0.3)


async def test_keeper_leaves_no_zombies(workshop: Workshop) -> None:
    body = "[child('', start_new_session=True) for _ in range(3)]; print('up'); hang()"
    orphans = 'child(\'import subprocess, sys; subprocess.Popen([sys.executable, "-S", "-c", ""])\'); '
    async with Process(workshop.command(orphans * 3 + body)) as process:
        await said(process, "up")
        (keeper,) = psutil.Process(process.keeper_pid).children()
        workshop.wait(lambda: all(p.status() != psutil.STATUS_ZOMBIE for p in keeper.children()))


async def test_cancelled_boot_leaves_nothing(workshop: Workshop) -> None:
    async def serve() -> None:
        async with Process(workshop.command("hang()")):
            await asyncio.sleep(100)

    for delay_s in (0.0, 0.005, 0.02, 0.05, 0.2):
        task = asyncio.create_task(serve())
        await asyncio.sleep(delay_s)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not workshop.alive()


async def test_environment_of_the_child(workshop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "/from/outside")
    monkeypatch.setenv("INHERITED", "yes")
    body = "print(*[os.environ.get(n) for n in sys.argv[1:]], os.getcwd()); hang()"
    names = ("INHERITED", "PYTHONPATH", "PYTHONSAFEPATH", "PYTHONUNBUFFERED")
    async with Process(workshop.command(body, *names)) as process:
        await said(process, f"yes None 1 1 {workshop.folder}\n".rstrip())
    (workshop.folder / "server.log").unlink()
    command = workshop.command(body, "PYTHONPATH")
    async with Process(Command(**{**_fields(command), "env": {"PYTHONPATH": "/given"}})) as process:
        await said(process, "/given")


def _fields(command: Command) -> dict[str, object]:
    return {name: getattr(command, name) for name in Command.__slots__}


async def test_large_environment(workshop: Workshop) -> None:
    command = workshop.command("print(len(os.environ['BIG'])); hang()")
    big = {f"BIG{i}": "x" * 100_000 for i in range(5)} | {"BIG": "x" * 100_000}
    async with Process(Command(**{**_fields(command), "env": {**big}})) as process:
        await said(process, "100000")


async def test_full_disk_hangs_nothing(workshop: Workshop) -> None:
    log = workshop.folder / "full.log"
    log.symlink_to("/dev/full")
    body = "child('print(1)'); time.sleep(0.2)\nprint('lost')\nhang()"
    fault = await fault_of(workshop.command(body, log=log))
    assert fault.kind == "exited"  # the program does not survive its own print
    assert not workshop.alive()


async def test_second_boot_in_the_same_folder_has_its_own_tail(workshop: Workshop) -> None:
    for word in ("first", "second"):
        async with Process(workshop.command(f"print({word!r}); hang()")) as process:
            await said(process, word)
            assert process.log_tail() == word


async def test_log_flood(workshop: Workshop) -> None:
    body = "line = 'x' * 200\nfor i in range(100_000): print(i, line)\nprint('done'); hang()"
    async with Process(workshop.command(body)) as process:
        await asyncio.wait_for(said(process, "done"), 60)
        tail = process.log_tail()
    assert len(tail) <= 8192
    assert len(tail.splitlines()) <= 40


async def test_log_in_a_missing_folder(workshop: Workshop, tmp_path: Path) -> None:
    fault = await fault_of(workshop.command("", log=tmp_path / "nowhere" / "server.log"))
    assert fault.message == "cannot write the server's log: No such file or directory"


async def test_keeper_that_fails(workshop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "_KEEPER", workshop.script("raise ValueError('a mistake of ours')"))
    fault = await fault_of(workshop.command("hang()"))
    assert (fault.kind, fault.message) == ("internal", "its keeper failed: ValueError: a mistake of ours")


@pytest.mark.slow
async def test_what_cannot_be_killed_in_time_is_told(workshop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    """The keeper goes on; a sweep must not."""
    monkeypatch.setattr(supervisor, "_GRACE_S", -0.8)
    process = Process(workshop.command(DEAF, stop_timeout_s=1.0))

    async def use() -> None:
        async with process:
            await said(process, "up")

    with pytest.raises(TrialFault, match="still there after the stop") as caught:
        await use()
    assert (caught.value.kind, caught.value.stage, caught.value.transient) == ("not_gone", "stop", False)
    await asyncio.to_thread(process._keeper.wait)
    assert not workshop.alive()


@pytest.mark.slow
async def test_first_failure_is_kept_when_the_stop_fails_too(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "_GRACE_S", -0.8)
    process = Process(workshop.command(DEAF, stop_timeout_s=1.0))

    async def use() -> None:
        async with process:
            await said(process, "up")
            raise KeyError("first")

    with pytest.raises(KeyError, match="first") as caught:
        await use()
    assert "not_gone" in caught.value.__notes__[0]
    await asyncio.to_thread(process._keeper.wait)


GRACEFUL = """
inner = child("import signal, time; signal.signal(signal.SIGTERM, lambda *_: (print('child told', flush=True), exit(0))); print('child is up', flush=True); time.sleep(1000)")
def end(*_):
    print("program told", flush=True)
    if sys.argv[1] != "all":
        inner.kill()
    inner.wait()
    sys.exit(0)
signal.signal(signal.SIGTERM, end)
print("ready", flush=True)
hang()
"""


@pytest.mark.parametrize("term_all", [True, False])
async def test_who_is_told_to_stop(workshop: Workshop, *, term_all: bool) -> None:
    command = workshop.command(GRACEFUL, "all" if term_all else "one", term_all=term_all)
    async with Process(command) as process:
        await said(process, "ready")
        await said(process, "child is up")
    log = command.log.read_text()
    assert "program told" in log
    assert ("child told" in log) is term_all
