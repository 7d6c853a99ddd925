"""Calls that change what they decide by are put back before each run, and that is not timed."""

from __future__ import annotations

import time

import pytest
import torch

from dsabench.kernelbench import measure
from dsabench.kernelbench.correctness import KernelCase
from dsabench.kernelbench.timers import MachineCeilings, measure_ceilings, timer_for
from dsakernels.candidates.candidate import RestoringCall
from dsakernels.operators import OPERATORS
from dsakernels.shape import OperatorShape

on_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


def counted(device):
    """A call that adds to a total which its renewal takes back."""
    total = torch.zeros(1024, device=device)

    def run():
        return total.add_(1)

    return total, RestoringCall(run, total.zero_)


def test_a_call_is_renewed_before_each_run_and_only_the_run_is_timed():
    order = []

    def renew():
        order.append("renewed")
        time.sleep(0.02)

    def run():
        order.append("ran")
        return torch.empty(0)

    timer = timer_for("cpu", [RestoringCall(run, renew)])
    order.clear()
    timer._inner = 3
    assert timer.sample() < 5_000  # a renewal takes 20,000 µs
    assert order == ["renewed", "ran"] * 3
    total, call = counted("cpu")
    call()
    assert bool((call() == 1).all())
    assert call.run() is total


@on_gpu
@pytest.mark.parametrize("captures", [True, False])
def test_a_replay_is_renewed_before_each_sample(captures):
    total, call = counted("cuda")
    timer = timer_for("cuda", [call], captures=captures)
    assert timer.is_graph == captures
    for _ in range(3):
        timer.sample()
        assert bool((total == 1).all())


def test_the_floor_is_the_hosts_link_where_that_was_measured():
    case = KernelCase(OPERATORS["hisparse_swap_in"], OperatorShape("v3.2", 128, 8, 1, 8192), "bf16", "cpu", seed=0)
    without = measure._floor(case, MachineCeilings(4.0, 800.0))
    told = measure._floor(case, MachineCeilings(4.0, 800.0, link_gb_s=50.0))
    assert told["link_bytes"] == 8 * 205 * 1152
    assert told["floor_us"] == pytest.approx(8 * 205 * 1152 / 50e3)
    assert told["ceiling_link_gb_s"] == 50.0
    assert without == {
        name: without[name] for name in ("bytes", "flops", "floor_us", "ceiling_tb_s", "ceiling_tflop_s")
    }
    assert without["floor_us"] < told["floor_us"] / 20
    attention = KernelCase(OPERATORS["sparse_decode"], OperatorShape("v3.2", 128, 8, 1, 8192), "bf16", "cpu", seed=0)
    assert measure._floor(attention, MachineCeilings(4.0, 800.0, 50.0)) == measure._floor(
        attention, MachineCeilings(4.0, 800.0)
    )


def test_a_cpu_has_no_link_to_measure():
    found = measure_ceilings("cpu", link=True)
    assert found.link_gb_s is None
    assert found.tb_s > 0


@on_gpu
def test_the_link_is_slower_than_the_gpus_memory():
    found = measure_ceilings("cuda", link=True)
    assert 1 < found.link_gb_s < 1000 * found.tb_s
