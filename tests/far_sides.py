"""Real ways to start a command elsewhere: a ssh server of the test's own, the slurm and the engines that are here."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dsabench.config.specs import ContainerConfig
from dsabench.runtimes.command import Launch

_SSHD = """
Port {port}
ListenAddress 127.0.0.1
HostKey {folder}/host
PidFile {folder}/pid
AuthorizedKeysFile {folder}/user.pub
StrictModes no
UsePAM no
"""
_SSH = """
Host far
  HostName 127.0.0.1
  Port {port}
  IdentityFile {folder}/user
  IdentitiesOnly yes
  UserKnownHostsFile {folder}/known
"""
_JOB = f"dsabench-test-{os.getpid()}"
_SYSTEM = ("/bin", "/lib", "/lib64", "/usr")
_PRIVILEGES = Path("/run/sshd")
IMAGE = "localhost/dsabench-nothing:1"
"""An image without a file: the machine's own programs are mounted into it."""


@contextmanager
def ssh_server(folder: Path) -> Iterator[tuple[str, ...]]:
    """A ssh server on loopback with throwaway keys, and the words that reach it, less the host `far`."""
    program = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin")
    if program is None or shutil.which("ssh") is None:
        pytest.skip("no sshd is installed")
    if os.getuid() == 0 and not _PRIVILEGES.is_dir():
        pytest.skip(f"sshd of root wants {_PRIVILEGES}")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    for key in ("host", "user"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / key], check=True)
    (folder / "sshd").write_text(_SSHD.format(port=port, folder=folder))
    (folder / "ssh").write_text(_SSH.format(port=port, folder=folder))
    (folder / "known").write_text(f"[127.0.0.1]:{port} {(folder / 'host.pub').read_text()}")
    server = subprocess.Popen([program, "-D", "-f", folder / "sshd", "-E", folder / "log"])
    try:
        _wait_for(port)
        yield ("ssh", "-F", str(folder / "ssh"))
    finally:
        server.terminate()
        server.wait(10)


def _wait_for(port: int) -> None:
    for _ in range(100):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    pytest.skip("sshd does not start here")


@contextmanager
def slurm() -> Iterator[tuple[str, ...]]:
    """The words that start a task with the slurm of this machine, where its node is this one.

    An allocation that srun made for itself stays, empty, when srun is killed with SIGKILL; it is cancelled here.
    """
    if shutil.which("srun") is None:
        pytest.skip("no slurm is installed")
    words = ("srun", "--nodes=1", "--ntasks=1", f"--job-name={_JOB}")
    try:
        done = subprocess.run(
            [*words, "--immediate=5", "hostname"], capture_output=True, text=True, timeout=20, check=False
        )
    except subprocess.TimeoutExpired:
        pytest.skip("slurm gives no node")
    if done.returncode != 0 or done.stdout.strip() != socket.gethostname():
        pytest.skip(f"slurm does not run tasks on this machine: {done.stderr.strip()[-80:]}")
    try:
        yield words
    finally:
        subprocess.run(["scancel", f"--name={_JOB}"], capture_output=True, check=False)


@contextmanager
def container(engine: str, folder: Path) -> Iterator[ContainerConfig]:
    """An image into which this machine's programs and the folder are mounted."""
    if shutil.which(engine) is None:
        pytest.skip(f"no {engine} is installed")
    empty = subprocess.run(["tar", "-c", "-T", "/dev/null"], capture_output=True, check=True).stdout
    made = subprocess.run([engine, "import", "-", IMAGE], input=empty, capture_output=True, check=False)
    if made.returncode != 0:
        pytest.skip(f"{engine} makes no image: {made.stderr.decode().strip()[-80:]}")
    try:
        words = [engine, "run", "--rm", "--network", "host", *_mounted(folder), IMAGE, "/usr/bin/env"]
        tried = subprocess.run(words, capture_output=True, check=False)
        if tried.returncode != 0:
            pytest.skip(f"{engine} runs no container: {tried.stderr.decode().strip()[-160:]}")
        mounts = tuple(word for word in _mounted(folder) if word != "-v")
        yield ContainerConfig.model_validate({"engine": engine, "image": IMAGE, "mounts": mounts})
    finally:
        subprocess.run([engine, "rmi", IMAGE], capture_output=True, check=False)


def _mounted(folder: Path) -> list[str]:
    here = {sys.prefix, sys.base_prefix, str(folder), *(name for name in _SYSTEM if Path(name).exists())}
    return [word for name in sorted(here) for word in ("-v", f"{name}:{name}")]


@contextmanager
def far_side(client: str, folder: Path) -> Iterator[Launch]:
    """How to start `sys.executable` through that client."""
    python = Path(sys.executable)
    match client:
        case "env":  # a client that is none: the far side's own part, wherever the tests run
            yield Launch(python=python, command_prefix=("env", "--"))
        case "srun":
            with slurm() as words:
                yield Launch(python=python, command_prefix=words)
        case "docker" | "podman":
            with container(client, folder) as spec:
                yield Launch(python=python, container=spec)
        case _:
            with ssh_server(folder) as words:
                tty = ("-tt",) if client == "ssh -tt" else ()
                yield Launch(python=python, command_prefix=(*words, *tty, "far"))
