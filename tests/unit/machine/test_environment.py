from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from dsabench.machine.environment import (
    collect_environment,
    collect_hardware,
    commit_of,
    cpu_name,
    cuda_version,
    memory_limits_mib,
    memory_mib,
    output_of,
)
from dsabench.model.environment import RuntimeIdentity

IDENTITY = RuntimeIdentity(kind="reference", version="1", wheel_hash="0")
TABLE = "0, GPU-aaaa, NVIDIA H200, 143771, 580.95.05\n1, GPU-bbbb, NVIDIA H200, [N/A], 580.95.05\n"


@pytest.fixture
def nvidia_smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program of that name, first on PATH, that answers as the real one does."""
    script = tmp_path / "bin" / "nvidia-smi"
    script.parent.mkdir()
    head = "| NVIDIA-SMI 580.95.05    Driver Version: 580.95.05    CUDA Version: 13.0     |"
    script.write_text(f"#!/bin/sh\n[ $# = 0 ] && echo '{head}' || printf '{TABLE}'\n")
    script.chmod(0o755)
    monkeypatch.setenv("PATH", str(script.parent), prepend=os.pathsep)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return script


async def test_this_machine() -> None:
    hardware = await collect_hardware()
    assert hardware.cpu
    assert hardware.cpu_cores == len(os.sched_getaffinity(0))
    assert hardware.memory_mib % 1024 == 0 < hardware.memory_mib


@pytest.mark.usefixtures("nvidia_smi")
async def test_gpus() -> None:
    hardware = await collect_hardware()
    assert [(gpu.name, gpu.memory_mib, gpu.uuid) for gpu in hardware.gpus] == [
        ("NVIDIA H200", 143771, "GPU-aaaa"),
        ("NVIDIA H200", 0, "GPU-bbbb"),
    ]
    assert (hardware.driver, hardware.cuda) == ("580.95.05", "13.0")


@pytest.mark.usefixtures("nvidia_smi")
@pytest.mark.parametrize(
    ("setting", "uuids"), [("1", ["GPU-bbbb"]), ("1,0", ["GPU-bbbb", "GPU-aaaa"]), ("", []), ("0,7,1", ["GPU-aaaa"])]
)
async def test_visible_devices(monkeypatch: pytest.MonkeyPatch, setting: str, uuids: list[str]) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", setting)
    assert [gpu.uuid for gpu in (await collect_hardware()).gpus] == uuids


async def test_broken_nvidia_smi(nvidia_smi: Path) -> None:
    nvidia_smi.write_text("#!/bin/sh\necho 'NVIDIA-SMI has failed'; exit 9\n")
    assert (await collect_hardware()).gpus == ()


async def test_command_that_is_stuck_missing_or_fails() -> None:
    assert await output_of("sleep", "100", timeout_s=0.2) is None
    assert await output_of("no-such-program") is None
    assert await output_of("false") is None
    task = asyncio.create_task(output_of("sleep", "100"))
    await asyncio.sleep(0.1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def test_parsers() -> None:
    assert cpu_name("processor : 0\nmodel name\t: AMD EPYC 9654\n") == "AMD EPYC 9654"
    assert cpu_name("CPU implementer\t: 0x41\nCPU part\t: 0xd4f\n").endswith(" 0x41 0xd4f")
    assert cpu_name("")
    assert memory_mib("MemTotal:       24684084 kB\n") == 24 * 1024
    assert cuda_version("| CUDA Version: 12.8  |") == "12.8"
    assert cuda_version("nothing") is None


async def test_environment_is_the_same_twice() -> None:
    first, second = await collect_environment(IDENTITY), await collect_environment(IDENTITY)
    assert first == second
    assert len(first.fingerprint) == 16


async def test_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert await commit_of(tmp_path) is None
    (tmp_path / "pyproject.toml").write_text("")
    git = ("git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b")
    assert await output_of(*git, "init", "-q") is not None
    assert await commit_of(tmp_path) is None  # no commit yet
    assert await output_of(*git, "add", ".") is not None
    assert await output_of(*git, "commit", "-q", "-m", "x") is not None
    commit = await commit_of(tmp_path)
    assert commit
    assert len(commit) == 40
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "journal.jsonl").write_text("{}")
    assert await commit_of(tmp_path) == commit
    (tmp_path / "pyproject.toml").write_text("changed")
    assert await commit_of(tmp_path) == f"{commit}+dirty"
    monkeypatch.setenv("PATH", "/nowhere")
    assert await commit_of(tmp_path) is None


def test_memory_is_at_most_what_the_control_groups_allow(tmp_path):
    inner = tmp_path / "box" / "job"
    inner.mkdir(parents=True)
    (tmp_path / "box" / "memory.max").write_text(f"{130 * 2**30}\n")
    (inner / "memory.max").write_text("max\n")
    told = "9:name=systemd:/\n4:memory:/other\n0::/box/job\n"
    assert memory_limits_mib(told, tmp_path) == [130 * 1024]
    (inner / "memory.max").write_text(f"{126 * 2**30 + 5}\n")
    assert memory_limits_mib(told, tmp_path) == [126 * 1024, 130 * 1024]
    assert memory_limits_mib("4:memory:/other\n", tmp_path) == []
    assert memory_limits_mib("0::/gone\n", tmp_path / "nowhere") == []
