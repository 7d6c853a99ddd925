from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import dsabench
from dsabench.errors import InputError
from dsabench.runtimes import cores as cores_module
from dsabench.runtimes.cores import lease_cores, pinned, split_cores
from dsabench.runtimes.locks import holder, lock_folder, try_lock

HOLDER = """
import asyncio, sys
from pathlib import Path
from dsabench.runtimes.cores import lease_cores

async def main():
    async with lease_cores([int(core) for core in sys.argv[2].split(",")], folder=Path(sys.argv[1])):
        print("held", flush=True)
        await asyncio.sleep(1000)

asyncio.run(main())
"""
ALLOWED = sorted(os.sched_getaffinity(0))


@pytest.mark.parametrize(("count", "client"), [(1, 1), (2, 1), (3, 1), (4, 1), (8, 2), (16, 4), (64, 4), (256, 4)])
def test_split(monkeypatch: pytest.MonkeyPatch, count: int, client: int) -> None:
    monkeypatch.setattr(cores_module, "_TOPOLOGY", "/nowhere/{}")
    split = split_cores(range(10, 10 + count))
    assert len(split.client) == client
    assert split.shared == (count == 1)
    assert set(split.server) | set(split.client) == set(range(10, 10 + count))
    assert count == 1 or not set(split.server) & set(split.client)


def test_split_keeps_hardware_twins_together(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for core in range(8):
        (tmp_path / str(core)).write_text(f"{core % 4},{core % 4 + 4}\n")
    monkeypatch.setattr(cores_module, "_TOPOLOGY", str(tmp_path / "{}"))
    assert split_cores(range(8)).client == (3, 7)


def test_pins_every_thread_and_puts_it_back() -> None:
    stop = threading.Event()
    thread = threading.Thread(target=stop.wait)
    thread.start()
    try:
        with pinned(ALLOWED[-1:]):
            assert os.sched_getaffinity(0) == set(ALLOWED[-1:])
            assert os.sched_getaffinity(thread.native_id or 0) == set(ALLOWED[-1:])
        assert os.sched_getaffinity(thread.native_id or 0) == set(ALLOWED)
    finally:
        stop.set()
        thread.join()
    assert os.sched_getaffinity(0) == set(ALLOWED)


async def test_two_processes_exclude_each_other_and_survive_sigkill(tmp_path: Path) -> None:
    said: list[str] = []
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path), ",".join(map(str, ALLOWED))],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(Path(dsabench.__file__).parent.parent)},
    ) as other:
        assert other.stdout
        assert other.stdout.readline() == b"held\n"
        waiting = asyncio.create_task(_hold(tmp_path, said))
        while not said:
            await asyncio.sleep(0.01)
        assert not waiting.done()
        assert said == [f"waiting for core {ALLOWED[0]}, which process {other.pid} measures on"]
        other.send_signal(signal.SIGKILL)
        other.wait()
        await asyncio.wait_for(waiting, 60)
    assert list(tmp_path.iterdir()) == []  # not even those that the killed process left


async def _hold(folder: Path, said: list[str]) -> None:
    async with lease_cores(ALLOWED, on_wait=said.append, folder=folder) as lease:
        assert os.sched_getaffinity(0) == set(lease.client)
        assert len(lease.fds) == len(ALLOWED)
        assert holder(folder / f"core-{ALLOWED[0]}.lock") == os.getpid()


async def test_cancelled_wait_gives_back_what_it_held(tmp_path: Path) -> None:
    fd = try_lock(tmp_path / "core-1001.lock")
    assert fd is not None

    async def wait() -> None:
        async with lease_cores([1000, 1001], folder=tmp_path):
            pass

    task = asyncio.create_task(wait())
    while (free := try_lock(tmp_path / "core-1000.lock")) is not None:  # until the task has it
        os.close(free)
        await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    again = try_lock(tmp_path / "core-1000.lock")
    assert again is not None
    os.close(again)
    os.close(fd)


def test_deleted_lock_file_is_made_again(tmp_path: Path) -> None:
    file = tmp_path / "lock"
    first = try_lock(file)
    file.unlink()
    second = try_lock(file)
    assert first is not None
    assert second is not None
    os.close(first)
    os.close(second)


async def test_a_lock_that_a_child_still_holds_stays_and_others_go(tmp_path: Path) -> None:
    held = try_lock(tmp_path / "port-1.lock")
    assert held is not None
    (tmp_path / "port-2.lock").write_text("1")
    core = ALLOWED[0]
    async with lease_cores([core], folder=tmp_path) as lease:
        child = os.dup(lease.fds[0])
    assert sorted(file.name for file in tmp_path.iterdir()) == [f"core-{core}.lock", "port-1.lock"]
    assert try_lock(tmp_path / f"core-{core}.lock") is None
    os.close(child)
    os.close(held)


def test_lock_folder_is_private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    folder = lock_folder()
    assert folder.stat().st_mode & 0o777 == 0o700
    folder.rmdir()
    folder.symlink_to("/")
    if os.getuid() != 0:
        with pytest.raises(InputError, match="not this user's"):
            lock_folder()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "missing"))
    with pytest.raises(InputError, match="set TMPDIR"):
        lock_folder()
