"""What is left when dsabench itself is killed, or interrupted twice: nothing, neither a process nor a port."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

import dsabench
from dsabench.runtimes.ports import is_free
from unit.workshop import STUBBORN, Workshop

pytestmark = pytest.mark.slow

TESTS = Path(__file__).parents[2]
DRIVER = """
import asyncio, json, os, sys, time
from pathlib import Path
from unit.workshop import boot
from dsabench.runtimes.cores import lease_cores
from dsabench.runtimes.protocol import Place

script, folder, forked, stop_timeout_s = sys.argv[1:]

async def main():
    async with lease_cores(folder=Path(folder), on_wait=print) as lease:
        place = Place(folder=Path(folder), cores=lease.server, held_fds=lease.fds, stop_timeout_s=float(stop_timeout_s))
        argv = lambda port: (sys.executable, "-S", script, str(port))
        async with boot(argv, place) as server:
            copy = os.fork() if forked else None
            if copy == 0:
                time.sleep(1000)  # with copies of every pipe
            print(json.dumps({"url": server.base_url, "server": server.parts[0].process.pid, "copy": copy}), flush=True)
            await asyncio.sleep(1000)

asyncio.run(main())
"""
SERVER = f"""
server = listen()
child({STUBBORN!r}, start_new_session=True)
child({STUBBORN!r})
server.serve_forever()
"""


def start_driver(
    workshop: Workshop, server: str, *, forked: str = "", stop_timeout_s: float = 0.5
) -> subprocess.Popen[str]:
    """dsabench in a process and a session of its own."""
    arguments = (workshop.script(server), workshop.folder, forked, str(stop_timeout_s))
    return subprocess.Popen(
        [sys.executable, "-c", DRIVER, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (Path(dsabench.__file__).parents[1], TESTS)))},
        start_new_session=True,
    )


@dataclass
class Driven:
    process: subprocess.Popen[str]
    port: int
    server_pid: int
    copy_pid: int | None
    waited_for: list[str]


@contextmanager
def driven(workshop: Workshop, server: str = SERVER, **options: Any) -> Iterator[Driven]:
    """A driver whose server is ready."""
    with start_driver(workshop, server, **options) as process:
        assert process.stdout
        assert process.stderr
        said: list[str] = []
        try:
            while not said or not said[-1].startswith("{"):
                said.append(process.stdout.readline())
                assert said[-1], process.stderr.read()
            facts = json.loads(said.pop())
            yield Driven(process, int(facts["url"].rpartition(":")[2]), facts["server"], facts["copy"], said)
        finally:
            process.kill()


@pytest.mark.timing
def test_sigkill_of_dsabench(workshop: Workshop) -> None:
    with driven(workshop) as driver:
        assert not is_free(driver.port)
        assert len(workshop.alive()) == 6  # the driver, two keepers, the server and two grandchildren
        driver.process.kill()
        assert workshop.wait_gone() < 2.5
        assert is_free(driver.port)


def test_sigkill_where_a_forked_copy_holds_the_pipes_open(workshop: Workshop) -> None:
    with driven(workshop, forked="yes") as driver:
        assert driver.copy_pid
        driver.process.kill()
        workshop.wait(lambda: [p.pid for p in workshop.alive()] == [driver.copy_pid])
        os.kill(driver.copy_pid, signal.SIGKILL)
        workshop.wait_gone()


def test_sigkill_of_the_whole_session(workshop: Workshop) -> None:
    with driven(workshop) as driver:
        os.killpg(driver.process.pid, signal.SIGKILL)
        workshop.wait_gone()
        assert is_free(driver.port)


def test_sigkill_while_booting(workshop: Workshop) -> None:
    """At any moment of the boot, also before the job was handed to the keeper."""
    for delay_s in (0.35, 0.42, 0.49, 0.56, 0.63):
        with start_driver(workshop, "time.sleep(0.3)\n" + SERVER, stop_timeout_s=0.2) as driver:
            time.sleep(delay_s)
            driver.kill()
        workshop.wait_gone()


@pytest.mark.parametrize("presses", [1, 2, 3])
def test_ctrl_c(workshop: Workshop, presses: int) -> None:
    """The terminal sends the signal to the whole foreground group."""
    with driven(workshop) as driver:
        for _ in range(presses):
            os.killpg(driver.process.pid, signal.SIGINT)
            time.sleep(0.1)
        driver.process.wait(60)
        assert driver.process.returncode != 0
        workshop.wait_gone()
        workshop.wait(lambda: is_free(driver.port))


def test_locks_outlive_dsabench_until_the_server_is_gone(workshop: Workshop) -> None:
    """A resumed sweep must not measure beside the server that its predecessor left."""
    slow = "server = listen(); signal.signal(signal.SIGTERM, lambda *_: (time.sleep(1), os._exit(0)))\nserver.serve_forever()"
    with driven(workshop, slow, stop_timeout_s=5) as first:
        first.process.kill()
        first.process.wait()
        assert psutil.pid_exists(first.server_pid)
        with driven(workshop, slow) as second:
            assert not psutil.pid_exists(first.server_pid)
            core = min(os.sched_getaffinity(0))
            assert second.waited_for == [
                f"waiting for core {core}, which the server left by process {first.process.pid} (being stopped) measures on\n"
            ]
    workshop.wait_gone()
