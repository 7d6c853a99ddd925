"""A Ray cluster of two nodes on this machine, one of them in a network namespace of its own: they share no loopback."""

from __future__ import annotations

import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

_RAY = Path(sys.executable).with_name("ray")
_SETTLE_S = 60.0


@dataclass(frozen=True, slots=True)
class TwoNodes:
    """The head, which shares the test's network, and the far node."""

    address: str
    """`HOST:PORT` of the head."""
    head: str
    far: str
    """Their addresses."""
    namespace: str
    raylets: tuple[subprocess.Popen[bytes], subprocess.Popen[bytes]]

    def kill_far(self) -> None:
        """As when its machine loses power: all of it at once."""
        for pid in self._far_processes():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def far_servers(self, module: str = "sglang") -> list[str]:
        """Command lines over there of processes of a module: SGLang's, or the reference runtime's."""
        found = []
        for pid in self._far_processes():
            with suppress(OSError):
                found.append(Path(f"/proc/{pid}/cmdline").read_bytes().decode().replace("\0", " "))
        return [words for words in found if f" -m {module}" in words]

    def _far_processes(self) -> list[int]:
        words = ["ip", "netns", "pids", self.namespace]
        return [int(pid) for pid in subprocess.run(words, capture_output=True, check=True).stdout.split()]


@contextmanager
def two_nodes(folder: Path, gpus: int) -> Iterator[TwoNodes]:
    """Each with as many GPUs, which nobody looks for. Skips where there is no Ray, or no namespace may be made."""
    pytest.importorskip("ray")
    from ray._private.services import get_node_ip_address

    if os.getuid() != 0 or shutil.which("ip") is None:
        pytest.skip("only root makes network namespaces, with ip")
    head, number = str(get_node_ip_address()), random.randrange(1, 250)
    network, name = f"10.77.{number}", f"dsb{number}"
    with ExitStack() as stack:
        _make_namespace(stack, name, network)
        with socket.socket() as probe:
            probe.bind((head, 0))
            port = probe.getsockname()[1]
        there = ["ip", "netns", "exec", name]
        first = _start(
            stack,
            folder / "head.log",
            [],
            gpus,
            ["--head", "--include-dashboard=false", f"--node-ip-address={head}", f"--port={port}"],
        )
        _wait(folder / "head.log", first)
        join = [f"--address={head}:{port}", f"--node-ip-address={network}.2"]
        second = _start(stack, folder / "far.log", there, gpus, join)
        _wait(folder / "far.log", second)
        yield TwoNodes(f"{head}:{port}", head, f"{network}.2", name, (first, second))


def _make_namespace(stack: ExitStack, name: str, network: str) -> None:
    made = subprocess.run(["ip", "netns", "add", name], capture_output=True, check=False)
    if made.returncode != 0:
        pytest.skip(f"no network namespace can be made: {made.stderr.decode().strip()}")
    stack.callback(subprocess.run, ["ip", "netns", "del", name], check=True)
    here, there = f"h{name}", f"f{name}"
    for words in (
        ["link", "add", here, "type", "veth", "peer", "name", there, "netns", name],
        ["addr", "add", f"{network}.1/24", "dev", here],
        ["link", "set", here, "up"],
        ["-n", name, "addr", "add", f"{network}.2/24", "dev", there],
        ["-n", name, "link", "set", there, "up"],
        ["-n", name, "link", "set", "lo", "up"],
        ["-n", name, "route", "add", "default", "via", f"{network}.1"],
    ):
        subprocess.run(["ip", *words], check=True)


def _start(
    stack: ExitStack, log: Path, before: Sequence[str], gpus: int, words: Sequence[str]
) -> subprocess.Popen[bytes]:
    common = ["--num-cpus=2", f"--num-gpus={gpus}", "--disable-usage-stats", "--object-store-memory=200000000"]
    env = {**os.environ, "RAY_AUTH_MODE": "disabled"}
    with log.open("wb") as file:
        process = subprocess.Popen(
            [*before, str(_RAY), "start", "--block", *common, *words],
            env=env,
            cwd=log.parent,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
        )
    stack.callback(_end, process)
    return process


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(40)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _wait(log: Path, process: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + _SETTLE_S
    while b"Ray runtime started" not in log.read_bytes():
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < until, log.read_text()
        time.sleep(0.1)
