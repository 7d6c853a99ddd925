from __future__ import annotations

import time
from dataclasses import replace
from itertools import islice

import pytest

from dsabench.kernelbench.correctness import KernelCase
from dsabench.kernelbench.measure import time_interleaved
from dsabench.kernelbench.request import TimingLimits
from dsabench.kernelbench.sustained import GpuReadings, sustain
from dsabench.kernelbench.timers import CpuTimer
from dsabench.machine.nvml import open_nvml
from dsakernels.candidates import CANDIDATES
from dsakernels.candidates.candidate import RestoringCall
from dsakernels.operators import OPERATORS
from dsakernels.shape import OperatorShape
from nvml_driver import driver, needs_compiler

CASE = KernelCase(OPERATORS["sparse_decode"], OperatorShape("small", 8, 8, 1, 256), "bf16", "cpu", seed=0)
SOUND = next(c for c in CANDIDATES if c.operator == "sparse_decode" and c.name == "torch_flashmla_sparse")
LIMITS = TimingLimits(min_samples=6, max_samples=6, half_width=1e6)


def test_calls_run_back_to_back_for_as_long_as_asked():
    looks = []
    timer = CpuTimer([lambda: time.sleep(0.002), lambda: time.sleep(0.002)])
    took_us = timer.sustain(0.2, 2000.0, lambda: looks.append(time.monotonic()))
    assert took_us >= 2000
    assert 1 <= len(looks) <= 10  # every 20 ms, or later on a busy machine


def test_a_point_says_the_time_of_a_call_under_load_where_that_is_asked_for():
    kept = list(islice(CASE.draws(), 2))
    (without,) = time_interleaved(CASE, [SOUND], kept, LIMITS)
    (told,) = time_interleaved(CASE, [SOUND], kept, replace(LIMITS, sustain_s=0.05))
    assert "sustained_us" not in without
    assert told["sustained_us"] > 0
    assert told["status"] == "ok"


def test_one_that_fails_only_under_load_gives_no_number():
    def bind(inputs):
        call = SOUND.bind(inputs)

        def tired():
            if time.monotonic() > until:
                raise RuntimeError("an illegal memory access")
            return call()

        return tired

    kept = list(islice(CASE.draws(), 1))
    until = time.monotonic() + 0.5
    (told,) = time_interleaved(CASE, [replace(SOUND, bind=bind)], kept, replace(LIMITS, sustain_s=1.0))
    assert told == {"status": "failed", "reason": "RuntimeError: an illegal memory access"}


def test_what_is_restored_before_each_call_cannot_run_so():
    timer = CpuTimer([RestoringCall(renew=lambda: None, run=lambda: None)])
    assert sustain(timer, 0.05, 10.0) == {}


@needs_compiler
def test_clock_power_and_what_holds_it_down_are_read_meanwhile(tmp_path):
    gpu = open_nvml(str(driver(tmp_path))).device("0")
    readings = GpuReadings(gpu)
    CpuTimer([lambda: time.sleep(0.001)]).sustain(0.5, 1000.0, readings.look)
    assert (readings.sm_mhz, readings.slowed) == (1980, "power cap, software thermal")
    assert readings.power_w == pytest.approx(400, rel=0.2)


@needs_compiler
def test_a_gpu_that_does_not_tell_leaves_its_fields_empty(tmp_path):
    readings = GpuReadings(open_nvml(str(driver(tmp_path))).device("1"))
    assert (readings.sm_mhz, readings.power_w, readings.slowed) == (None, None, None)
    readings.look()
    assert (readings.sm_mhz, readings.power_w, readings.slowed) == (345, None, None)
