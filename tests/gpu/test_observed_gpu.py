"""The driver's own figures of a GPU that works: an observer, beside a loop of matrix products.

    python -m pytest tests/gpu/test_observed_gpu.py -s      # on a machine with an NVIDIA GPU; prints what a look costs

Skipped without NVML or without a CUDA device that PyTorch reaches.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time

import psutil
import pytest
import torch

from dsabench.machine.nvml import open_nvml
from dsabench.machine.sampler import MachineReader, MachineSampler
from dsabench.machine.server_gpus import VISIBLE, busy_gpus, visible_names
from dsabench.machine.usage import MachineSamples, TimeWindow

pytestmark = pytest.mark.skipif(
    open_nvml() is None or not torch.cuda.is_available(), reason="needs NVML and a CUDA device"
)
LOAD_S = 6.0
LOOP = f"""
import sys, time, torch
a = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
pool = torch.empty(2 << 30, device="cuda", dtype=torch.uint8)
a @ a
torch.cuda.synchronize()
print("ready", flush=True)
end = time.monotonic() + {LOAD_S}
while time.monotonic() < end:
    for _ in range(20):
        a @ a
    torch.cuda.synchronize()
"""


def first_gpu() -> str:
    (name,) = visible_names(range(1), os.environ)
    return name


def test_a_gpu_that_multiplies_is_busy_and_takes_power() -> None:
    gpu, env = first_gpu(), {**os.environ, VISIBLE: first_gpu()}
    loop = subprocess.Popen([sys.executable, "-c", LOOP], stdout=subprocess.PIPE, text=True, env=env)
    assert loop.stdout is not None
    try:
        assert loop.stdout.readline() == "ready\n"
        with MachineSampler(gpus=(gpu,)) as observer:
            begun_s = time.perf_counter()
            assert busy_gpus(1, {VISIBLE: gpu}) == (gpu,), "2 GiB of it are the loop's"
            time.sleep(LOAD_S - 1.0)
            window = TimeWindow(begun_s, time.perf_counter())
            assert observer._child is not None
            used = psutil.Process(observer._child.pid).cpu_times()
    finally:
        loop.kill()
        loop.wait()
        loop.stdout.close()
    assert observer.fault is None
    course = MachineSamples.of(observer)
    assert course.covers(window)
    seen = course.gpu(0, window, [window])
    print(f"\n{seen}\nCPU of the observer: {used.user + used.system:.3f} s in {window.duration_s:.1f} s")
    assert seen.busy_share is not None
    assert seen.busy_share > 0.5
    assert seen.busy_at_work is not None
    assert seen.busy_at_work > 0.5
    assert seen.energy_j is not None
    assert seen.energy_j > 0
    assert seen.power_w is not None
    assert seen.power_w > 50
    assert seen.sm_mhz is not None
    assert seen.sm_mhz > 0
    assert seen.temperature_c is not None
    assert 10 < seen.temperature_c < 110
    assert used.user + used.system < 0.1 * window.duration_s


def test_what_a_look_costs() -> None:
    machine = MachineReader(sorted(os.sched_getaffinity(0)), (first_gpu(),))
    machine.look()
    begun_s, begun_cpu_s = time.perf_counter(), time.process_time()
    for _ in range(50):
        machine.look()
    took_ms, cpu_ms = ((end - begun) * 20 for end, begun in (
        (time.perf_counter(), begun_s), (time.process_time(), begun_cpu_s)))  # fmt: skip
    print(f"\na look at one GPU takes {took_ms:.2f} ms, {cpu_ms:.2f} ms of CPU")
    assert took_ms < 100
