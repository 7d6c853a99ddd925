from __future__ import annotations

from dsabench.microbench.gpu_state import GpuState, parse


def test_a_line_of_nvidia_smi():
    assert parse("1980, 2619, 41, 0x0000000000000004") == GpuState(1980, 2619, 41, 4)
    assert parse("[N/A], 2619, 41, 0x0") is None
    assert parse("") is None


def test_the_power_cap_is_load_and_heat_is_throttling():
    assert GpuState(1980, 2619, 41, 0x4).throttled is None
    assert GpuState(1200, 2619, 88, 0x24).throttled == "software thermal"
    assert GpuState(1200, 2619, 88, 0x40).throttled == "hardware thermal"
