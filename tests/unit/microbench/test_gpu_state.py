from __future__ import annotations

import shutil
import subprocess

import pytest

from dsabench.microbench.gpu_state import GpuState, read_state

DRIVER = """
#include <string.h>
#define DEVICE ((void *)0x123456789abcULL)
int nvmlInit_v2(void) { return 0; }
int nvmlDeviceGetHandleByUUID(const char *uuid, void **device) {
  *device = DEVICE;
  return strcmp(uuid, "GPU-1") ? 6 : 0;
}
int nvmlDeviceGetClockInfo(void *device, int kind, unsigned *mhz) {
  *mhz = kind == 1 ? 1980 : 2619;
  return device == DEVICE ? 0 : 2;
}
int nvmlDeviceGetTemperature(void *device, int sensor, unsigned *celsius) { *celsius = 41; return sensor; }
int NAME(void *device, unsigned long long *reasons) { *reasons = 0x24; return device == DEVICE ? 0 : 2; }
"""


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
@pytest.mark.parametrize("name", ["EventReasons", "ThrottleReasons"])
def test_the_library_is_called_as_nvml_is(tmp_path, name):
    source, library = tmp_path / "driver.c", tmp_path / "driver.so"
    source.write_text(DRIVER.replace("NAME", f"nvmlDeviceGetCurrentClocks{name}"))
    subprocess.run(["cc", "-shared", "-fPIC", "-o", str(library), str(source)], check=True)
    assert read_state("GPU-1", str(library)) == GpuState(1980, 2619, 41, 0x24)
    assert read_state("GPU-2", str(library)) is None


def test_without_the_drivers_library_there_is_no_state():
    assert read_state("GPU-0", library="libnvidia-ml-absent.so") is None


def test_the_power_cap_is_load_and_heat_is_throttling():
    assert GpuState(1980, 2619, 41, 0x4).throttled is None
    assert GpuState(1200, 2619, 88, 0x24).throttled == "software thermal"
    assert GpuState(1200, 2619, 88, 0x40).throttled == "hardware thermal"
