"""A real server process that is stopped for a while under load."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from dsabench.load.judge.summary import summarise
from dsabench.load.load_test import run_load_test
from dsabench.load.requests import LoadTarget
from factories import make_workload

pytestmark = [pytest.mark.slow, pytest.mark.timing]

ROOT = Path(__file__).parents[2]


@pytest.fixture
def server() -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    with closing(socket.socket()) as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    env = {**os.environ, "PYTHONPATH": f"{ROOT / 'harness'}{os.pathsep}{ROOT / 'kernels'}"}
    command = [sys.executable, "-m", "dsabench.reference.launch_server", "--model-path", "tiny", "--port", str(port)]
    process = subprocess.Popen(command, env=env, start_new_session=True, stderr=subprocess.DEVNULL)
    url = f"http://127.0.0.1:{port}"
    try:
        _wait(process, f"{url}/health")
        yield process, url
    finally:
        os.killpg(process.pid, signal.SIGCONT)
        process.terminate()
        process.wait(20)


def _wait(process: subprocess.Popen[bytes], url: str) -> None:
    until_s = time.monotonic() + 60
    while process.poll() is None and time.monotonic() < until_s:
        try:
            with urllib.request.urlopen(url, timeout=5) as answer:
                if answer.status == 200:
                    return
        except (urllib.error.URLError, OSError):
            time.sleep(0.1)
    raise AssertionError("the server did not start")


async def test_a_server_that_is_stopped_under_load(server: tuple[subprocess.Popen[bytes], str]) -> None:
    process, url = server
    workload = make_workload(num_prompts=60, output_len=16, input_len=32)
    target = LoadTarget(url, "tiny", vocab_size=256)
    await run_load_test(target, workload, on_progress=lambda _done, _all: None)  # nothing is new to it afterwards
    calm = await run_load_test(target, workload, on_progress=lambda _done, _all: None)
    assert not [line for line in summarise(calm, workload).warnings if "stood still" in line]

    stopped: list[float] = []

    def stop_once(done: int, _all: int) -> None:
        if done >= 8 and not stopped:
            stopped.append(time.perf_counter())
            os.killpg(process.pid, signal.SIGSTOP)
            asyncio.get_running_loop().call_later(1.6, os.killpg, process.pid, signal.SIGCONT)

    run = await run_load_test(target, workload, on_progress=stop_once)
    assert stopped
    [line] = [line for line in summarise(run, workload).warnings if "stood still" in line]
    assert line.startswith("the server stood still: no token from any stream for 1.")
    assert "with 4 in flight" in line
