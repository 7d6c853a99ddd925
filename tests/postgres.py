"""A PostgreSQL of this machine for one test, on a socket in its own folder."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

_READY_S = 30.0


@contextmanager
def running() -> Iterator[str]:
    """Its URL for SQLAlchemy; skips the test where PostgreSQL is not installed."""
    initdb, server = shutil.which("initdb"), shutil.which("postgres")
    if initdb is None or server is None:
        pytest.skip("no PostgreSQL is installed")
    # PostgreSQL does not run as root.
    user = "nobody" if os.geteuid() == 0 else pwd.getpwuid(os.geteuid()).pw_name
    folder = Path(tempfile.mkdtemp(prefix="pg-"))  # a socket's path is short
    try:
        if os.geteuid() == 0:
            os.chown(folder, pwd.getpwnam(user).pw_uid, -1)
        data = str(folder / "data")
        subprocess.run(
            [initdb, "-D", data, "-A", "trust", "-U", "test", "--no-sync"], user=user, check=True, capture_output=True, cwd=folder,
        )  # fmt: skip
        words = [server, "-D", data, "-k", str(folder), "-c", "listen_addresses=", "-c", "fsync=off"]
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen(words, user=user, stdout=log, stderr=log, cwd=folder)
        try:
            _wait_for(folder / ".s.PGSQL.5432", process)
            yield f"postgresql+psycopg2://test@/postgres?host={folder}"
        finally:
            process.send_signal(signal.SIGINT)  # at once; SIGTERM waits for its clients
            process.wait(30)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _wait_for(socket: Path, process: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + _READY_S
    while not socket.exists():
        assert process.poll() is None, "PostgreSQL ended"
        assert time.monotonic() < until, "PostgreSQL is not ready"
        time.sleep(0.05)
