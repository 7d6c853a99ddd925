from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from dsabench.errors import TrialFault
from dsabench.runtimes.gpu_memory import Reading, memory_back, read_used
from nvml_driver import driver, needs_compiler


def readings(*values: Reading | None) -> Callable[[], Reading | None]:
    left = list(values)
    return lambda: left.pop(0) if len(left) > 1 else left[0]


@pytest.mark.timing
async def test_it_waits_until_the_memory_is_back() -> None:
    begun = time.monotonic()
    async with memory_back(readings((500, 10), (90_000, 10), (40_000, 10), (900, 10))):
        pass
    assert 0.9 < time.monotonic() - begun < 3


async def test_memory_that_stays_is_told_with_its_gpu() -> None:
    with pytest.raises(TrialFault, match="GPU 1 holds 50,000 MiB more than before the boot") as caught:
        async with memory_back(readings((0, 0), (0, 50_000)), wait_s=0.2):
            pass
    assert (caught.value.kind, caught.value.stage) == ("not_gone", "stop")


async def test_another_error_keeps_its_place() -> None:
    with pytest.raises(ZeroDivisionError) as caught:
        async with memory_back(readings((0,), (50_000,)), wait_s=0.1):
            _ = 1 / 0
    assert "not_gone" in caught.value.__notes__[0]


async def test_a_machine_without_a_gpu_is_not_asked_twice() -> None:
    asked = []

    def read() -> None:
        asked.append(1)

    async with memory_back(read):
        pass
    assert len(asked) == 1


def test_only_the_gpus_that_the_server_sees_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    smi = tmp_path / "nvidia-smi"
    smi.write_text(
        '#!/bin/sh\nfor word; do [ "$before" = -i ] && { echo 7; exit; }; before=$word; done\necho 7\necho 90000\n'
    )
    smi.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    assert read_used(library="libnvidia-ml-absent.so") == (7, 90_000)
    assert read_used("0", library="libnvidia-ml-absent.so") == (7,)


@needs_compiler
def test_nvml_is_asked_first(tmp_path: Path) -> None:
    library = str(driver(tmp_path))
    assert read_used(library=library) == (70_000, 600)
    assert read_used("GPU-1", library) == (70_000,)
