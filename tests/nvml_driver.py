"""A library that is called as NVML is, compiled from C: two GPUs whose figures are known at any time.

GPU 0 (`GPU-1` by uuid) is busy for 90 % of the time, takes 400 W and is hot; 70,000 MiB of it are in use, or what USED_MIB says.
The file that PIDS names has the processes on it, a number a line.
GPU 1 is idle at 100 W and tells neither its temperature nor its reasons, as a part of a GPU does. Energy counts from the
machine's start.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

needs_compiler = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")

SOURCE = """
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#define BUSY_ONE ((void *)0x123456789abcULL)
#define IDLE_ONE ((void *)0x123456789defULL)
#define UNSUPPORTED 3
static unsigned long long number(const char *name, unsigned long long usual) {
  const char *text = getenv(name);
  return text ? strtoull(text, 0, 0) : usual;
}
static int known(void *device) { return device == BUSY_ONE || device == IDLE_ONE ? 0 : 2; }
int nvmlInit_v2(void) { return 0; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = 2; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) {
  *device = index ? IDLE_ONE : BUSY_ONE;
  return index > 1 ? 2 : 0;
}
int nvmlDeviceGetHandleByUUID(const char *uuid, void **device) {
  *device = BUSY_ONE;
  return strcmp(uuid, "GPU-1") ? 6 : 0;
}
int nvmlDeviceGetUtilizationRates(void *device, unsigned rates[2]) {
  rates[0] = device == BUSY_ONE ? 90 : 0;
  rates[1] = 7;
  return known(device);
}
int nvmlDeviceGetClockInfo(void *device, int kind, unsigned *mhz) {
  *mhz = kind == 1 ? device == BUSY_ONE ? 1980 : 345 : 2619;
  return known(device);
}
int nvmlDeviceGetTemperature(void *device, int sensor, unsigned *celsius) {
  *celsius = 41;
  return device == BUSY_ONE ? sensor : UNSUPPORTED;
}
int nvmlDeviceGetCurrentClocksREASONS(void *device, unsigned long long *reasons) {
  *reasons = 0x24;
  return device == BUSY_ONE ? 0 : UNSUPPORTED;
}
int nvmlDeviceGetTotalEnergyConsumption(void *device, unsigned long long *millijoules) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  *millijoules = (now.tv_sec * 1000ULL + now.tv_nsec / 1000000) * (device == BUSY_ONE ? 400 : 100);
  return known(device);
}
int nvmlDeviceGetPowerUsage(void *device, unsigned *milliwatts) {
  *milliwatts = device == BUSY_ONE ? 400000 : 100000;
  return known(device);
}
struct process { unsigned pid; unsigned long long bytes; unsigned gpu, compute; };
int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *count, struct process *found) {
  unsigned pids[16], many = 0;
  const char *name = getenv("PIDS");
  FILE *file = name && device == BUSY_ONE ? fopen(name, "r") : 0;
  while (file && many < 16 && fscanf(file, "%u", &pids[many]) == 1) many++;
  if (file) fclose(file);
  unsigned room = *count;
  *count = many;
  if (many > room) return 7;
  for (unsigned i = 0; i < many; i++) found[i] = (struct process){pids[i], 1 << 30, ~0u, ~0u};
  return known(device);
}
int nvmlDeviceGetMemoryInfo(void *device, unsigned long long sizes[3]) {
  sizes[0] = 80ULL << 30;
  sizes[2] = device == BUSY_ONE ? number("USED_MIB", 70000) << 20 : 600ULL << 20;
  sizes[1] = sizes[0] - sizes[2];
  return known(device);
}
"""


def driver(folder: Path, reasons: str = "EventReasons") -> Path:
    """Compile it."""
    source, library = folder / "driver.c", folder / "driver.so"
    source.write_text(SOURCE.replace("REASONS(", f"{reasons}("))
    done = subprocess.run(
        ["cc", "-shared", "-fPIC", "-o", str(library), str(source)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return library


def as_the_drivers_own(folder: Path) -> dict[str, str]:
    """Variables under which a process finds it by NVML's own name."""
    driver(folder).rename(folder / "libnvidia-ml.so.1")
    return {"LD_LIBRARY_PATH": os.pathsep.join(filter(None, [str(folder), os.environ.get("LD_LIBRARY_PATH")]))}
