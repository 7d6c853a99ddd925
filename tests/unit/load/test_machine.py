"""What the machine did → metrics and warnings of a record."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from dsabench.load.judge.machine_use import (
    CompletedWork,
    MachineUse,
    machine_line,
    machine_metrics,
    machine_use,
    machine_warnings,
)
from dsabench.load.judge.summary import summarise
from dsabench.machine.cpu_use import is_disturbed
from dsabench.machine.sampler import MachineSampler
from dsabench.machine.usage import CpuUsage, GpuUsage
from dsabench.model.metrics import METRICS, OBJECTIVES
from dsabench.model.record import Measured
from factories import make_workload
from unit.load.made import closed_loop, run_of, sample

QUIET = CpuUsage(16, 0.2, 0.001, 0.005, 0.016, 0.3)
BUSY = GpuUsage("0", 50, 0.97, 45, 0.98, 1900.0, 1755.0, 600.0, 6000.0, 61.0, 8000.0, 0.4, 0.0, ())
WORKLOAD = make_workload(num_prompts=40)


def cautions(cpu: CpuUsage = QUIET, *gpus: GpuUsage) -> list[str]:
    return list(machine_warnings(MachineUse(cpu, gpus)))


def measured(use: MachineUse | None, unobserved: str | None = None) -> Measured:
    """40 requests of 10 + 10 tokens."""
    return summarise(replace(run_of(closed_loop(4, 10), 10.75), machine=use, unobserved=unobserved), WORKLOAD)


def test_metrics_of_a_record() -> None:
    second = BUSY._replace(busy_share=0.5, sm_mhz=1500.0, sm_mhz_min=345.0, power_w=300.0, energy_j=3000.0,
                           temperature_c=70.0, free_mib=9000.0, throttled_share=0.005, capped_share=0.0)  # fmt: skip
    metrics = measured(MachineUse(QUIET, (BUSY, second))).metrics
    told = {name: (one.value, one.n) for name, one in metrics.items() if name.startswith(("gpu.", "host.", "energy_"))}
    assert told == {
        "host.cpu_busy_share": (0.2, 16),
        "host.steal_share": (0.001, 16),
        "host.cpu_pressure_share": (0.3, 1),
        "gpu.busy_share.mean": (pytest.approx(0.735), 90),
        "gpu.busy_share.min": (0.5, 90),
        "gpu.sm_clock_mhz.mean": (1700, 100),
        "gpu.sm_clock_mhz.min": (345, 100),
        "gpu.power_w.mean": (450, 2),
        "gpu.temperature_c.max": (70, 100),
        "gpu.memory_free_mib.min": (8000, 100),
        "gpu.throttled_share.max": (0.005, 100),
        "gpu.power_capped_share.max": (0.4, 100),
        "gpu.energy_j": (9000, 2),
        "energy_per_output_token_j": (9000 / 400, 40),
        "energy_per_token_j": (9000 / 800, 40),
    }
    assert set(told) <= set(METRICS)
    assert set(told) & set(OBJECTIVES) == {"gpu.energy_j", "energy_per_output_token_j", "energy_per_token_j"}


def test_what_is_not_known_is_absent() -> None:
    assert not {name for name in measured(None).metrics if name.startswith(("gpu.", "host.", "energy_"))}
    alone = measured(MachineUse(QUIET._replace(pressure_share=None), ())).metrics
    assert {name for name in alone if name.startswith(("gpu.", "host.", "energy_"))} == {
        "host.cpu_busy_share", "host.steal_share",
    }  # fmt: skip
    mute = BUSY._replace(energy_j=None, busy_share=None)
    partly = machine_metrics(MachineUse(QUIET, (BUSY, mute)), CompletedWork(1, 10, 10))
    assert "gpu.sm_clock_mhz.mean" in partly
    assert not {name for name in partly if "energy" in name or "busy_share.m" in name}
    nothing = machine_metrics(MachineUse(QUIET, (BUSY,)), CompletedWork(0, 0, 0))
    assert "gpu.energy_j" in nothing
    assert "energy_per_token_j" not in nothing


def test_a_quiet_machine_with_busy_gpus_is_not_warned_of() -> None:
    assert cautions(QUIET, BUSY, BUSY._replace(busy_at_work=0.1)) == []
    assert cautions(QUIET) == []
    assert cautions(QUIET, BUSY._replace(capped_share=1.0)) == [], "a GPU at its power limit is under load"


def test_a_gpu_that_waits_for_the_host() -> None:
    [said] = cautions(QUIET, BUSY._replace(busy_at_work=0.55))
    assert said.startswith(
        "the GPU was idle 45% of the time with requests in flight: what was timed is to a good part the"
    )
    [said] = cautions(QUIET, BUSY._replace(busy_at_work=0.2), BUSY._replace(busy_at_work=0.3))
    assert said.startswith(
        "even the busiest GPU was idle 70% of the time with requests in flight: what was timed is mostly"
    )
    assert cautions(QUIET, BUSY._replace(busy_at_work=0.8)) == []
    assert cautions(QUIET, BUSY._replace(busy_at_work=None, busy_share=0.1)) == [], "it waited for requests"


def test_a_throttled_gpu() -> None:
    hot = BUSY._replace(name="3", throttled_share=0.12, slowed_by=("software thermal",))
    [said] = cautions(QUIET, BUSY, hot)
    assert said.startswith("GPU 3 was throttled 12% of the time (software thermal): these are times of lower clocks;")
    [said] = cautions(QUIET, hot._replace(throttled_share=0.02, slowed_by=("power brake",)), hot)
    assert said.startswith("GPU 3 and 1 more were throttled 12% of the time (power brake, software thermal)")
    assert cautions(QUIET, hot._replace(throttled_share=0.005)) == []


def test_stolen_time() -> None:
    """A scheduler and a tokenizer on 16 cores, of whose time a fifth is taken: little of all, much of theirs."""
    [said] = cautions(QUIET._replace(busy_share=0.1, stolen_share=0.025, stolen_of_wanted=0.2, stolen_cores=0.4))
    assert said.startswith("the hypervisor took 20% of the CPU time that was wanted (0.40 cores)")
    assert is_disturbed([said])
    assert cautions(QUIET._replace(stolen_of_wanted=0.2, stolen_cores=0.01)) == [], "of next to nothing"
    assert cautions(QUIET._replace(stolen_of_wanted=0.01, stolen_cores=0.16)) == [], "of 16 busy cores"


def test_warnings_reach_the_record() -> None:
    warnings = measured(MachineUse(QUIET, (BUSY._replace(busy_at_work=0.5),))).warnings
    assert any(warning.startswith("the GPU was idle 50%") for warning in warnings)
    assert "the machine was not observed: it fell asleep" in measured(None, "it fell asleep").warnings


def test_one_line_of_it() -> None:
    line = machine_line(machine_metrics(MachineUse(QUIET, (BUSY,)), CompletedWork(40, 400, 2000)))
    assert line == (
        "Machine: GPU 97% busy, GPU clock 1900 MHz, 600 W per GPU, 61 °C, 3 J per output token, CPU 20% busy, 0.1% stolen, "
        "a task waited for a core 30% of the time"
    )
    untold = QUIET._replace(pressure_share=None)
    assert (
        machine_line(machine_metrics(MachineUse(untold, ()), CompletedWork(1, 1, 1)))
        == "Machine: CPU 20% busy, 0.1% stolen"
    )


def test_a_load_that_was_not_observed_whole_tells_nothing() -> None:
    with MachineSampler() as observer:
        start_s = time.perf_counter()
        time.sleep(0.05)
    assert machine_use(observer, start_s, [sample(last_s=0.04)]) is not None
    assert machine_use(observer, start_s, [sample(last_s=5.0)]) is None
    assert machine_use(observer, start_s, []) is None
    observer.fault = "it fell asleep"
    assert machine_use(observer, start_s, [sample(last_s=0.04)]) is None
