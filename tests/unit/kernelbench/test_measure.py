from __future__ import annotations

from dataclasses import replace
from itertools import islice, pairwise

from dsabench.kernelbench.correctness import KernelCase
from dsabench.kernelbench.measure import time_interleaved
from dsabench.kernelbench.request import TimingLimits
from dsakernels.candidates import CANDIDATES
from dsakernels.operators import OPERATORS
from dsakernels.shape import OperatorShape

CASE = KernelCase(OPERATORS["sparse_decode"], OperatorShape("small", 8, 8, 1, 256), "bf16", "cpu", seed=0)
SOUND = next(c for c in CANDIDATES if c.operator == "sparse_decode" and c.name == "torch_flashmla_sparse")
LIMITS = TimingLimits(min_samples=6, max_samples=6, half_width=1e6)


def recording(name, order):
    def bind(inputs):
        call = SOUND.bind(inputs)

        def recorded():
            order.append(name)
            return call()

        return recorded

    return replace(SOUND, name=name, bind=bind)


def test_candidates_take_turns_and_every_other_round_goes_backwards():
    order = []
    kept = list(islice(CASE.draws(), 2))
    found = time_interleaved(CASE, [recording("a", order), recording("b", order)], kept, LIMITS)
    assert [told["status"] for told in found] == ["ok", "ok"]
    assert all(told["n"] >= 6 and told["median_us"] > 0 for told in found)
    changes = [(before, after) for before, after in pairwise(order) if before != after]
    # a and b are warmed up; then ab ba ab ba ab ba
    assert changes == [("a", "b"), ("b", "a"), ("a", "b"), ("b", "a"), ("a", "b"), ("b", "a"), ("a", "b"), ("b", "a")]


def test_one_that_raises_leaves_the_others_their_times():
    def bind(inputs):
        def call():
            raise RuntimeError("no kernel image")

        return call

    kept = list(islice(CASE.draws(), 2))
    broken, sound = time_interleaved(CASE, [replace(SOUND, name="broken", bind=bind), SOUND], kept, LIMITS)
    assert (broken["status"], broken["reason"]) == ("failed", "RuntimeError: no kernel image")
    assert sound["status"] == "ok"
