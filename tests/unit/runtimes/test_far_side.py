"""Nothing that a client starts elsewhere outlives dsabench. Each client is the real program, where it is installed."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

import dsabench
from dsabench.errors import InputError, TrialFault
from dsabench.machine.cpu_use import processes_with
from dsabench.model.runtime import RuntimeSpec
from dsabench.model.topology import RoleHosts
from dsabench.runtimes.command import Launch, Lifeline, enclose
from dsabench.runtimes.deployment import engine_of, with_id_file
from dsabench.runtimes.orphans import MARK
from dsabench.runtimes.protocol import Place
from dsabench.runtimes.supervisor import Command, Process
from dsabench.sglang.installed import ask
from dsabench.sglang.runtime import SglangRuntime
from far_sides import far_side, ssh_server
from sglang_server import install_server
from unit.workshop import STUBBORN

CLIENTS = ("env", "ssh", "ssh -tt", "srun", "docker", "podman")
SERVER = f"""
import signal, subprocess, sys, time
subprocess.Popen([sys.executable, "-S", "-c", {STUBBORN!r}], start_new_session=True)
def end(*_):
    print("ended in good order", flush=True)
    sys.exit(0)
signal.signal(signal.SIGTERM, end)
print("serving", flush=True)
time.sleep(1000)
"""
DRIVER = """
import asyncio, json, sys
from pathlib import Path
from dsabench.runtimes.supervisor import Command, Process

job = json.loads(sys.argv[1])
async def main():
    async with Process(Command(tuple(job["argv"]), Path(job["cwd"]), Path(job["log"]), job["boot"],
                               stop_timeout_s=5.0, lifeline=True)) as process:
        await process.died("load")
asyncio.run(main())
"""


@pytest.fixture(scope="module", params=CLIENTS)
def far(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Launch]:
    with far_side(request.param, tmp_path_factory.mktemp("far")) as launch:
        yield launch


@pytest.fixture(scope="module")
def ssh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, ...]]:
    with ssh_server(tmp_path_factory.mktemp("ssh")) as words:
        yield words


def command(launch: Launch, folder: Path, *words: str, loopback: bool = False) -> Command:
    """Those words on the far side. Without the accelerators that a container would be given: there are none."""
    boot = str(uuid.uuid4())
    tied = dataclasses.replace(launch, lifeline=Lifeline(boot, 5.0, loopback=loopback))
    argv, _ = enclose(words, {}, tied)
    for unwanted in (("--gpus", "all"), ("--device", "nvidia.com/gpu=all")):
        if unwanted[0] in argv:
            at = argv.index(unwanted[0])
            assert argv[at : at + 2] == unwanted
            argv = (*argv[:at], *argv[at + 2 :])
    engine = engine_of(argv)
    if engine is not None:
        argv = with_id_file(argv, folder / f"{boot}.cid")
    return Command(argv, folder, folder / "server.log", boot, stop_timeout_s=5.0, lifeline=True)


def python(launch: Launch, folder: Path, code: str, **options: bool) -> Command:
    return command(launch, folder, sys.executable, "-S", "-c", code, **options)


def processes_of(boot: str) -> list[psutil.Process]:
    """All that runs of it anywhere on this machine: marked, or a far keeper, which has the mark in its arguments."""
    found = set(processes_with(MARK, boot))
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if boot in " ".join(process.cmdline()) and process.pid != os.getpid():
                found.add(process)
    return list(found)


def wait_for(command: Command, word: str, timeout_s: float = 60.0) -> None:
    deadline = time.monotonic() + timeout_s
    while word not in (command.log.read_text() if command.log.exists() else ""):
        assert time.monotonic() < deadline, command.log.read_text() if command.log.exists() else "no log"
        time.sleep(0.05)


def wait_gone(command: Command, timeout_s: float = 60.0) -> None:
    deadline = time.monotonic() + timeout_s
    while left := processes_of(command.boot):
        assert time.monotonic() < deadline, f"left behind: {[process.cmdline()[:4] for process in left]}"
        time.sleep(0.1)


async def test_a_stop_reaches_the_far_side(far: Launch, tmp_path: Path) -> None:
    what = python(far, tmp_path, SERVER)
    async with Process(what):
        await asyncio.to_thread(wait_for, what, "serving")
        assert len(processes_of(what.boot)) >= 3  # a container of root shows its environment to root alone
    assert "ended in good order" in what.log.read_text()
    wait_gone(what)


@pytest.mark.slow
@pytest.mark.parametrize("victim", ["dsabench", "keeper", "guard", "client"])
def test_a_kill_reaches_the_far_side(far: Launch, tmp_path: Path, victim: str) -> None:
    what = python(far, tmp_path, SERVER)
    job = {"argv": what.argv, "cwd": str(tmp_path), "log": str(what.log), "boot": what.boot}
    root = str(Path(dsabench.__file__).parent.parent)
    driver = subprocess.Popen(
        [sys.executable, "-c", DRIVER, json.dumps(job)],
        env={**os.environ, "PYTHONPATH": root},
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        wait_for(what, "serving")
        guard = psutil.Process(driver.pid).children()[0]
        keeper = guard.children()[0]
        client = keeper.children()[0]
        {"dsabench": psutil.Process(driver.pid), "keeper": keeper, "guard": guard, "client": client}[victim].kill()
        wait_gone(what)
    finally:
        for process in processes_of(what.boot):
            with contextlib.suppress(psutil.Error):
                process.kill()
        driver.kill()
        driver.wait()
        identity = tmp_path / f"{what.boot}.cid"
        if identity.exists():  # as `removed_after` does while dsabench lives
            subprocess.run([what.argv[0], "rm", "-f", identity.read_text()], capture_output=True, check=False)


async def fault_of(what: Command) -> TrialFault:
    async def run() -> None:
        async with Process(what) as process:
            await asyncio.wait_for(process.died("boot"), 30)

    with pytest.raises(TrialFault) as caught:
        await run()
    wait_gone(what)
    return caught.value


async def test_how_the_server_ends_is_told_as_if_it_were_here(far: Launch, tmp_path: Path) -> None:
    code = "import sys; print('the last words'); sys.exit(3)"
    fault = await fault_of(python(far, tmp_path, code))
    assert (fault.kind, fault.message) == ("exited", "exited with code 3: the last words")
    fault = await fault_of(python(far, tmp_path, "import os; os.kill(os.getpid(), 9)"))
    assert (fault.kind, fault.transient) == ("killed", True)
    code = "import sys; print('x: error: bad'); sys.exit(2)"
    fault = await fault_of(python(far, tmp_path, code))
    assert (fault.kind, fault.message) == ("illegal_config", "bad")


async def test_a_program_that_is_not_there(far: Launch, tmp_path: Path) -> None:
    fault = await fault_of(command(far, tmp_path, "/nowhere/python", "-c", "1"))
    assert (fault.kind, fault.message) == (
        "missing_file",
        "dsabench: cannot run /nowhere/python: No such file or directory",
    )
    fault = await fault_of(command(dataclasses.replace(far, python=Path("/nowhere/python")), tmp_path, "true"))
    assert fault.kind == "missing_file"
    assert "/nowhere/python" in fault.message


async def test_words_arrive_as_they_are(far: Launch, tmp_path: Path) -> None:
    words = ("two words", "it's", 'a "quote"', '{"a": [1, "$HOME"]}', "`id`", "", "a\\b", "*", "line\nbreak", "ä")
    code = "import json, os, sys; print(json.dumps([sys.argv[1:], os.environ['A'], os.environ['PYTHONSAFEPATH']]))"
    launch = dataclasses.replace(far, env={"A": "it's $HOME"})
    what = command(launch, tmp_path, sys.executable, "-S", "-c", code, *words)
    await fault_of(what)
    line = next(line for line in what.log.read_text().splitlines() if line.startswith("[["))
    assert json.loads(line) == [list(words), "it's $HOME", "1"]


@pytest.fixture
def another_machine() -> Launch:
    """Another network namespace stands for another machine: its loopback is not ours."""
    prefix = ("unshare", "-n") if os.getuid() == 0 else ("unshare", "-rn")
    if subprocess.run([*prefix, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("no network namespace can be made here")
    return Launch(command_prefix=prefix, python=Path(sys.executable))


async def test_a_server_on_another_machine_is_not_waited_for_on_this_one(
    another_machine: Launch, tmp_path: Path
) -> None:
    fault = await fault_of(python(another_machine, tmp_path, "print('up')", loopback=True))
    assert fault.kind == "illegal_config"
    assert "is another machine" in fault.message
    assert "runtime.launch.sites.server.hosts" in fault.message
    fault = await fault_of(python(another_machine, tmp_path, "print('up')"))
    assert fault.kind == "exited"


async def test_a_far_side_without_a_lifeline_is_told(ssh: tuple[str, ...], tmp_path: Path) -> None:
    launch = Launch(python=Path(sys.executable), command_prefix=(*ssh, "-n", "far"))
    what = dataclasses.replace(python(launch, tmp_path, SERVER), stop_timeout_s=1.0)

    async def use() -> None:
        async with Process(what):
            await asyncio.to_thread(wait_for, what, "serving")

    try:
        with pytest.raises(TrialFault, match=f"did not say that the far side ended; look there for {MARK}="):
            await use()
        assert "stdin does not reach this side" in what.log.read_text()
    finally:
        for process in processes_of(what.boot):
            with contextlib.suppress(psutil.Error):
                process.send_signal(signal.SIGTERM)
    wait_gone(what)


@pytest.mark.parametrize(
    ("options", "kind", "words"),
    [
        (("-p", "1"), "unreachable", "Connection refused"),
        (("-o", "UserKnownHostsFile=/dev/null"), "illegal_config", "Host key verification failed."),
        (("-o", "HostName=nowhere.invalid"), "unreachable", "Could not resolve hostname"),
        (("-l", "nobody-of-this-name"), "illegal_config", "Permission denied"),
    ],
)
async def test_what_ssh_cannot_do(
    ssh: tuple[str, ...], tmp_path: Path, options: tuple[str, ...], kind: str, words: str
) -> None:
    launch = Launch(python=Path(sys.executable), command_prefix=(*ssh, *options, "far"))
    fault = await fault_of(python(launch, tmp_path, "print('up')"))
    assert (fault.kind, fault.transient) == (kind, kind == "unreachable")
    assert words in fault.message
    with pytest.raises(InputError, match=words):
        ask(launch, "identity", timeout_s=20)


@pytest.mark.slow
def test_a_question_that_takes_too_long_leaves_nothing(far: Launch, tmp_path: Path) -> None:
    if far.container is not None:
        pytest.skip("a container is asked with the accelerators that are not here")
    mark = f"{tmp_path}/sitecustomize"
    (tmp_path / "sitecustomize.py").write_text("import sys, time\nprint('thinking', file=sys.stderr)\ntime.sleep(1000)")
    launch = dataclasses.replace(far, env={"PYTHONPATH": str(tmp_path), "DSABENCH_TEST_QUESTION": mark})
    with pytest.raises(InputError, match="gave no answer within 3 s: thinking"):
        ask(launch, "identity", timeout_s=3)
    deadline = time.monotonic() + 60
    while left := processes_with("DSABENCH_TEST_QUESTION", mark):
        assert time.monotonic() < deadline, left
        time.sleep(0.1)


async def test_sglang_is_served_through_ssh(
    ssh: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    launch = Launch(
        python=Path(sys.executable),
        env={"PYTHONPATH": str(install_server(tmp_path / "site"))},
        command_prefix=(*ssh, "-o", "HostName={host}", "far"),
        sites={"server": RoleHosts(hosts=("127.0.0.1",))},
    )
    note = 'it\'s "a" $HOME'
    knobs = {"tp_size": 8, "model_overrides": json.dumps({"note": note})}
    spec = RuntimeSpec(kind="sglang", model="v3.2", hardware="h200", knobs=knobs)
    place = Place(folder=tmp_path / "boot", ready_timeout_s=30, stop_timeout_s=5)
    async with SglangRuntime(launch).serve(spec, place) as server:
        assert (await server.info())["json_model_override_args"] == {"note": note}
        assert len(processes_of(place.boot)) >= 4
    assert not processes_of(place.boot)
    assert "fired up" in (tmp_path / "boot" / "server.log").read_text()
