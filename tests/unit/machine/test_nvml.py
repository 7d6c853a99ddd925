from __future__ import annotations

from pathlib import Path

import pytest

from dsabench.machine.nvml import GpuState, NvmlDevice, open_nvml, read_state
from nvml_driver import driver, needs_compiler


@needs_compiler
@pytest.mark.parametrize("reasons", ["EventReasons", "ThrottleReasons"])
def test_the_library_is_called_as_nvml_is(tmp_path: Path, reasons: str) -> None:
    library = str(driver(tmp_path, reasons))
    assert read_state("GPU-1", library) == GpuState(1980, 2619, 41, 0x24)
    assert read_state("GPU-2", library) is None


@needs_compiler
def test_a_gpu_tells_what_it_can(tmp_path: Path) -> None:
    nvml = open_nvml(str(driver(tmp_path)))
    assert nvml is not None
    assert nvml.names() == ("0", "1")
    assert nvml.device("2") is None
    busy, part = (_device(nvml.device(name)) for name in nvml.names())
    assert (busy.busy_share(), busy.power_w(), busy.used_mib(), busy.free_mib()) == (0.9, 400.0, 70_000, 11_920)
    assert (part.busy_share(), part.sm_mhz(), part.temperature_c(), part.reasons()) == (0.0, 345, None, None)
    assert part.state() is None
    first, second = busy.energy_j(), busy.energy_j()
    assert first is not None
    assert second is not None
    assert 0 < first <= second


def _device(found: NvmlDevice | None) -> NvmlDevice:
    assert found is not None
    return found


def test_without_the_drivers_library_there_is_no_state() -> None:
    assert read_state("GPU-0", library="libnvidia-ml-absent.so") is None


def test_the_power_cap_is_load_and_heat_is_throttling() -> None:
    assert GpuState(1980, 2619, 41, 0x4).throttled is None
    assert GpuState(1200, 2619, 88, 0x24).throttled == "software thermal"
    assert GpuState(1200, 2619, 88, 0x40).throttled == "hardware thermal"


@needs_compiler
def test_a_gpu_tells_who_computes_on_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nvml = open_nvml(str(driver(tmp_path)))
    assert nvml is not None
    busy, idle = (_device(nvml.device(name)) for name in nvml.names())
    assert busy.pids() == frozenset()
    monkeypatch.setenv("PIDS", str(tmp_path / "pids"))
    (tmp_path / "pids").write_text("".join(f"{pid}\n" for pid in range(1, 13)))
    assert busy.pids() == frozenset(range(1, 13))
    assert idle.pids() == frozenset()
