from __future__ import annotations

from dsabench.microbench.gpu_state import GpuState, read_state


def test_without_the_drivers_library_there_is_no_state():
    assert read_state("GPU-0", library="libnvidia-ml-absent.so") is None


def test_the_power_cap_is_load_and_heat_is_throttling():
    assert GpuState(1980, 2619, 41, 0x4).throttled is None
    assert GpuState(1200, 2619, 88, 0x24).throttled == "software thermal"
    assert GpuState(1200, 2619, 88, 0x40).throttled == "hardware thermal"
