"""A replayed call keeps what it prepared: a CUDA graph knows addresses only, and does not keep what lies at them."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch

from dsabench.kernelbench import timers

on_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
VALUES = 1 << 20


def bound(factor, device, prepared):
    """A call as an adapter binds it: it alone holds the tensor that it prepared. `prepared` gets a weak reference."""
    x = torch.arange(VALUES, device=device, dtype=torch.float32)
    factors = torch.full((VALUES,), float(factor), device=device)
    prepared.append(weakref.ref(factors))

    def call():
        return x * factors

    return call


class Graph:
    """What a replay needs of a CUDA graph."""

    def replay(self):
        pass


def test_a_replay_holds_the_tensors_of_its_call():
    prepared = []
    call = bound(2, "cpu", prepared)
    replay = timers._Replay(Graph(), call, call())
    del call
    gc.collect()
    assert prepared[0]() is not None
    assert replay().sum() > 0
    del replay
    gc.collect()
    assert prepared[0]() is None  # nothing else held it


@on_gpu
def test_replays_are_right_after_others_were_bound_and_their_memory_could_be_taken():
    prepared = []
    timer = timers.timer_for("cuda", [bound(factor, "cuda", prepared) for factor in (2, 3)])
    assert timer.is_graph
    gc.collect()
    taken = [torch.full((VALUES,), float("nan"), device="cuda") for _ in range(64)]
    other = timers.timer_for("cuda", [bound(factor, "cuda", []) for factor in (5, 7)])
    expected = torch.arange(VALUES, device="cuda", dtype=torch.float32)
    for _ in range(3):
        assert min(timer.sample(), other.sample()) > 0
        for calls, factors in ((timer._calls, (2, 3)), (other._calls, (5, 7))):
            for call, factor in zip(calls, factors, strict=True):
                assert torch.equal(call(), expected * factor)
    assert all(torch.isnan(tensor).all() for tensor in taken)


@on_gpu
def test_a_call_that_waits_for_the_gpu_is_launched_and_not_captured():
    total = torch.ones(1024, device="cuda")
    timer = timers.timer_for("cuda", [lambda: total * total.sum().item()])
    assert not timer.is_graph
    assert timer.sample() > 0
