"""Ranks on two machines: real processes that meet at an address, here of one machine."""

from __future__ import annotations

import os
import pickle
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from dsabench.errors import InputError
from dsabench.reference.server.arguments import parse
from dsabench.runtimes.orphans import MARK
from unit.reference.server.serving import Server, command, environment, serving

SHARED = ("--tp-size", "2")
PROMPT, TOKENS = "Two machines have one model.", 48


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@dataclass
class Pair:
    """The first machine's server, and the other machine's ranks."""

    first: Server
    other: subprocess.Popen[str]

    def other_said(self) -> str:
        assert self.other.stderr is not None
        return self.other.stderr.read()


@contextmanager
def other(port: int, *flags: str, **env: str) -> Iterator[subprocess.Popen[str]]:
    argv = command("--model", "tiny", "--cpu-threads", "1", *SHARED, *nodes(1, port), *flags)
    env = environment(**{MARK: "known to both", **env})
    process = subprocess.Popen(argv, env=env, stderr=subprocess.PIPE, text=True)
    with process:
        try:
            yield process
        finally:
            process.kill()


def nodes(rank: int, port: int) -> tuple[str, ...]:
    return ("--nnodes", "2", "--node-rank", str(rank), "--dist-init-addr", f"127.0.0.1:{port}")


@contextmanager
def pair() -> Iterator[Pair]:
    port = free_port()
    with other(port) as joined, serving(*SHARED, *nodes(0, port), **{MARK: "known to both"}) as first:
        yield Pair(first, joined)


def test_two_machines_answer_as_one_does() -> None:
    with serving(*SHARED) as one:
        expected = one.generate(PROMPT, TOKENS)["output_ids"]
    with pair() as two:
        assert two.first.generate(PROMPT, TOKENS)["output_ids"] == expected
        here = psutil.Process(two.first.process.pid).children()
        there = psutil.Process(two.other.pid).children()
        assert (len(here), len(there)) == (1, 1), "a rank each"
        assert two.first.stop() == 0
        assert two.other.wait(20) == 0
        assert not any(one.is_running() for one in (*here, *there))


def test_a_rank_that_is_killed_elsewhere_ends_both_and_is_named() -> None:
    with pair() as two:
        (rank,) = psutil.Process(two.other.pid).children()
        rank.kill()
        assert two.first.process.wait(20) == 1
        assert two.other.wait(20) == 137
        assert "rank 1 was killed by SIGKILL" in two.other_said()
    assert any("rank 1 is gone with its machine; the others end with it" in line for line in two.first.lines)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_without_the_first_machine_the_ranks_elsewhere_end(number: int) -> None:
    with pair() as two:
        two.first.process.send_signal(number)
        assert two.other.wait(20) == 0


def test_a_machine_that_is_told_to_end_waits_for_the_first_one_first() -> None:
    with pair() as two:
        two.other.terminate()
        time.sleep(0.5)
        assert two.first.generate(PROMPT)["output_ids"]
        assert two.first.stop() == 0
        assert two.other.wait(20) == 0


def test_strangers_are_not_let_in_and_unpickle_nothing(tmp_path: Path) -> None:
    """What does not know the secret, and one that sends a pickle as its answer to the challenge."""
    port, trace = free_port(), tmp_path / "unpickled"
    argv = command("--model", "tiny", "--port", "0", "--cpu-threads", "1", *SHARED, *nodes(0, port))
    env = environment(**{MARK: "known to both"})
    with subprocess.Popen(argv, env=env, stderr=subprocess.PIPE, text=True) as first:
        try:
            payload = pickle.dumps(_Touch(trace))
            for sent in (b"GET / HTTP/1.1\r\n\r\n", b"", len(payload).to_bytes(4, "big") + payload):
                with _called(port) as stranger:
                    stranger.sendall(sent)
            with other(port, **{MARK: "another"}) as refused:
                assert refused.wait(30) == 2
                assert refused.stderr is not None
                assert f"127.0.0.1:{port}: what answers there has another {MARK}" in refused.stderr.read()
            with other(port, "--page-size", "32") as differing:
                assert first.wait(30) == 2
                assert differing.wait(30) == 2
            assert first.stderr is not None
            assert first.stderr.read().endswith("error: rank 1 was started with other flags: --page-size\n")
        finally:
            first.kill()
    assert not trace.exists()


class _Touch:
    def __init__(self, file: Path) -> None:
        self._file = file

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, (str(self._file),)


def _called(port: int) -> socket.socket:
    for _ in range(200):
        try:
            return socket.create_connection(("127.0.0.1", port))
        except OSError:
            time.sleep(0.05)
    raise AssertionError("nobody listens")


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--nnodes", "2"], "--nnodes: several need --dist-init-addr, the address of the first one"),
        (["--nnodes", "2", "--node-rank", "2"], "--node-rank: 2 is not allowed (allowed: 0 to 1)"),
        (["--nnodes", "3", "--dist-init-addr", "a:1"], "--nnodes: 3 machines cannot share 2 ranks equally"),
        (
            ["--nnodes", "2", "--dp-size", "2", "--dist-init-addr", "a:1"],
            "--nnodes: replicas (--dp-size without --enable-dp-attention) are on one machine",
        ),
        (["--nnodes", "2", "--dist-init-addr", "a"], "--dist-init-addr: 'a' is not allowed (allowed: HOST:PORT)"),
    ],
)
def test_what_cannot_be_split_over_machines_is_one_line(flags: list[str], said: str) -> None:
    with pytest.raises(InputError) as refused:
        parse(["--model", "tiny", *SHARED, *flags])
    assert str(refused.value) == said


def test_without_a_secret_nobody_joins() -> None:
    argv = command("--model", "tiny", *SHARED, *nodes(1, 9))
    env = {name: value for name, value in environment().items() if name != MARK}
    done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (
        2,
        f"error: --nnodes: {MARK} has to be set, to the same secret on all machines\n",
    )
