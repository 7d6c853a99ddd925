"""An observer of the real machine, and of GPUs that a compiled stand-in for the driver tells of."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from dsabench.machine.sampler import EVERY_S, MachineSampler
from dsabench.machine.usage import MachineSamples, TimeWindow
from nvml_driver import driver, needs_compiler

SPIN = "import time\nend = time.monotonic() + {}\nwhile time.monotonic() < end: pass"


def busy_share(observer: MachineSampler, cores: tuple[int, ...], load_s: float) -> float:
    with observer:
        begun_s = time.perf_counter()
        subprocess.run(["taskset", "-c", str(cores[0]), sys.executable, "-c", SPIN.format(load_s)], check=True)
        window = TimeWindow(begun_s, time.perf_counter())
    course = MachineSamples.of(observer)
    assert course.covers(window)
    return course.cpu(window).busy_share


@pytest.mark.timing
def test_a_busy_loop_makes_its_core_busy() -> None:
    core = min(os.sched_getaffinity(0))
    observer = MachineSampler((core,))
    assert busy_share(observer, (core,), 1.0) > 0.6  # less than 1: the hypervisor, and the interpreter's start
    assert observer._child is None, "counters need no process"
    assert observer.cores == (core,)


def test_all_cores_that_may_be_used_are_observed() -> None:
    assert MachineSampler().cores == tuple(sorted(os.sched_getaffinity(0)))


def looks(observer: MachineSampler) -> int:
    assert observer._file is not None
    return os.fstat(observer._file.fileno()).st_size // observer._row_bytes


@pytest.mark.timing
@needs_compiler
def test_gpus_are_looked_at_all_the_while(tmp_path: Path) -> None:
    with MachineSampler(gpus=("GPU-1", "1"), library=str(driver(tmp_path))) as observer:
        assert observer._child is not None
        begun_s, own_s = time.perf_counter(), -time.process_time()
        # It gives way to others, so on a busy machine this takes longer than 3.5 s.
        while looks(observer) < 18 and time.perf_counter() - begun_s < 40.0:
            time.sleep(0.1)
        own_s += time.process_time()
        window = TimeWindow(begun_s, time.perf_counter())
        used = psutil.Process(observer._child.pid).cpu_times()
    assert own_s < 0.05, "this process does nothing"
    assert used.user + used.system < 0.5
    assert observer.fault is None
    course = MachineSamples.of(observer)
    assert course.covers(window)
    busy, idle = (course.gpu(place, window, [window]) for place in range(2))
    length_s = window.duration_s
    assert 14 <= busy.readings <= length_s / EVERY_S + 1
    assert (busy.name, busy.busy_share, busy.busy_at_work) == ("GPU-1", pytest.approx(0.9), pytest.approx(0.9))
    assert (busy.sm_mhz, busy.temperature_c, busy.throttled_share, busy.capped_share) == (1980, 41, 1, 1)
    assert (busy.slowed_by, busy.power_w) == (("software thermal",), pytest.approx(400, abs=1))
    assert busy.energy_j == pytest.approx(400 * length_s, rel=0.01)
    assert (idle.sm_mhz, idle.power_w, idle.temperature_c) == (345, pytest.approx(100, abs=1), None)
    assert not psutil.pid_exists(observer._child.pid)


def test_without_nvml_nothing_is_told_of_gpus() -> None:
    with MachineSampler(gpus=("0",), library="libnvidia-ml-absent.so") as observer:
        window = TimeWindow(time.perf_counter(), time.perf_counter() + 0.3)
        time.sleep(0.35)
    course = MachineSamples.of(observer)
    assert (observer._child, course.gpus) == (None, ())
    assert course.cpu(window).busy_share >= 0


@needs_compiler
def test_a_gpu_that_is_not_there_tells_nothing(tmp_path: Path) -> None:
    with MachineSampler(gpus=("7",), library=str(driver(tmp_path))) as observer:
        window = TimeWindow(time.perf_counter(), time.perf_counter() + 0.3)
        time.sleep(0.35)
    gpu = MachineSamples.of(observer).gpu(0, window, [window])
    assert (observer.fault, gpu.readings, gpu.energy_j, gpu.busy_share) == (None, 0, None, None)


@needs_compiler
def test_a_process_that_dies_is_told_and_spoils_nothing(tmp_path: Path) -> None:
    with MachineSampler(gpus=("0",), library=str(driver(tmp_path))) as observer:
        assert observer._child is not None
        observer._child.kill()
    assert observer.fault == "the process that looks ended: exit code -9"
    MachineSamples.of(observer)


@needs_compiler
def test_it_ends_with_whoever_started_it(tmp_path: Path) -> None:
    """Also after kill -9."""
    code = (
        "import time\nfrom dsabench.machine.sampler import MachineSampler\n"
        f"with MachineSampler(gpus=('0',), library={str(driver(tmp_path))!r}) as observer:\n"
        "    print(observer._child.pid, flush=True)\n    time.sleep(60)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    child = psutil.Process(int(parent.stdout.readline()))
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    parent.stdout.close()
    _, alive = psutil.wait_procs([child], timeout=60)
    assert alive == []
