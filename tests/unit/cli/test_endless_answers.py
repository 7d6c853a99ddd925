"""Servers whose answers never end, by trickling or by flooding: no command waits for them or fills the memory with them."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Callable

import pytest

from dsabench.cli.main import run
from unit.cli.bad_server import bad_server

JSON = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"


def trickle(connection: socket.socket) -> None:
    connection.sendall(JSON + b"Content-Length: 1000000\r\n\r\n")
    while True:
        connection.sendall(b" ")
        time.sleep(0.1)


def flood(connection: socket.socket) -> None:
    connection.sendall(JSON + b"Transfer-Encoding: chunked\r\n\r\n")
    while True:
        connection.sendall(b"10000\r\n" + b" " * 65536 + b"\r\n")


def heads(connection: socket.socket) -> None:
    connection.sendall(JSON)
    while True:
        connection.sendall(b"x")
        time.sleep(0.1)


def cut(connection: socket.socket) -> None:
    connection.sendall(JSON + b'Content-Length: 100\r\n\r\n{"data": [')


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        pytest.param(trickle, "no whole answer within 5 s", marks=pytest.mark.slow),
        pytest.param(heads, "no whole answer within 5 s", marks=pytest.mark.slow),
        (flood, "more than 8 MiB of answer"),
        (cut, "cut off after 10 bytes"),
    ],
)
def test_bench_waits_no_longer_than_it_was_told(
    answer: Callable[[socket.socket], None], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with bad_server(answer) as url:
        assert run(["bench", "--base-url", url, "--ready-check-timeout-sec", "2", "--model", "m"]) == 3
    waiting, error = capsys.readouterr().err.splitlines()
    assert waiting == f"note: waiting up to 2 s for {url} ({why}); --ready-check-timeout-sec sets the time"
    assert error == f"error: boot: unreachable: {url}/v1/models: {why} (waited 2 s)"


def test_a_flood_does_not_fill_the_memory_of_an_eval() -> None:
    words = [sys.executable, "-m", "dsabench", "eval", "needle", "--words", "200", "--num-examples", "1"]
    with bad_server(flood) as url:
        done = subprocess.run([*words, "--base-url", url], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 2
    assert f"no server answers at {url} (more than 8 MiB of answer)" in done.stderr
