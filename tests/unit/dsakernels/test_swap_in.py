"""HiSparse's swap-in: what is drawn, that every call of every candidate has the same work, and that idle ones are found."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from importlib.util import find_spec

import pytest
import torch

from dsabench.kernelbench.correctness import KernelCase, examine
from dsabench.kernelbench.measure import time_interleaved
from dsabench.kernelbench.request import TimingLimits
from dsakernels.candidates import CANDIDATES
from dsakernels.candidates.candidate import KernelDevice, why_not_here
from dsakernels.inputs import PAGE
from dsakernels.operators import OPERATORS
from dsakernels.operators.hisparse_swap_in import buffered, missing, spoil
from dsakernels.shape import OperatorShape, parse
from unit.dsakernels import foreign_kernels

OPERATOR = OPERATORS["hisparse_swap_in"]
SMALL = OperatorShape("small", 8, 8, 1, 256)
GRID = parse("v3.2-h128-b2-q1-kv8192")
BOTH = pytest.mark.parametrize("dtype", ["bf16", "fp8"])
[COPIES] = [c for c in CANDIDATES if c.name == "torch_copy_missing"]
[SGLANG] = [c for c in CANDIDATES if c.operator == OPERATOR.name and c.package is not None]


def drawn(shape, dtype="bf16", seed=0):
    return OPERATOR.make(shape, dtype, torch.Generator().manual_seed(seed))


def is_right(inputs, answer):
    rows = torch.arange(OPERATOR.rows(inputs.shape))
    return torch.equal(OPERATOR.pick(inputs, answer, rows), OPERATOR.expected(inputs, rows))


@pytest.mark.parametrize("shape", [SMALL, GRID], ids=lambda shape: shape.id)
def test_the_same_number_is_missing_in_every_sequence_and_draw_and_the_buffer_is_full(shape):
    size, newest = buffered(shape), shape.kv_tokens - 1
    first = drawn(shape)
    for inputs in (first, OPERATOR.redraw(first, torch.Generator().manual_seed(1))):
        for wanted, held, oldest in zip(inputs.wanted.long(), inputs.held, inputs.oldest, strict=True):
            assert int((held[wanted] < 0).sum()) == missing(shape)
            assert held[newest] == size
            assert sorted(held[held >= 0].tolist()) == list(range(size + 1))
            assert sorted(oldest.tolist()) == list(range(size))
            hits = held[wanted][(held[wanted] >= 0) & (wanted != newest)]
            assert set(oldest[size - len(hits) :].tolist()) == set(hits.tolist())
    assert missing(GRID) == 205


@BOTH
def test_another_draw_is_over_the_same_host_memory(dtype):
    first = drawn(SMALL, dtype)
    again = OPERATOR.redraw(first, torch.Generator().manual_seed(1))
    assert again.host is first.host
    assert again.buffer.shape == (SMALL.batch * (buffered(SMALL) + PAGE), first.host.shape[1])
    assert not torch.equal(again.wanted, first.wanted)
    assert is_right(again, COPIES.bind(again)())


def test_a_sequence_shorter_than_the_selection_has_all_of_its_tokens():
    for kv_tokens in (40, 1):
        inputs = drawn(OperatorShape("small", 8, 2, 1, kv_tokens))
        assert is_right(inputs, COPIES.bind(inputs)())
        assert OPERATOR.parts(inputs.shape) >= 1  # a check counts rows by it, and would never end


@BOTH
def test_sglangs_kernel_gives_missing_tokens_the_rows_that_the_contract_says(dtype, monkeypatch):
    foreign_kernels.install(monkeypatch)
    inputs = drawn(GRID, dtype)
    assert torch.equal(SGLANG.bind(inputs)(), COPIES.bind(inputs)())


@BOTH
def test_every_call_of_sglangs_kernel_copies_what_the_first_one_did(dtype, monkeypatch):
    foreign_kernels.install(monkeypatch)
    inputs = drawn(SMALL, dtype)
    call = SGLANG.bind(inputs)
    for _ in range(3):
        spoil(inputs)
        answer = call()
        assert is_right(inputs, answer)
        answer.fill_(-7)
    spoil(inputs)
    assert not is_right(inputs, call.run())  # not renewed: all were hits, and nothing was copied


def test_sglangs_tables_go_on_from_step_to_step(monkeypatch):
    """Without being put back they are what the runtime has: other selections find their rows by them."""
    foreign_kernels.install(monkeypatch)
    inputs = drawn(SMALL)
    call = SGLANG.bind(inputs)
    call.renew()
    size, newest = buffered(SMALL), SMALL.kv_tokens - 1
    rest = inputs.buffer.view(SMALL.batch, -1, inputs.buffer.shape[1])
    for sequence, held in enumerate(inputs.held):  # the rows of what is held and not wanted, which a draw leaves out
        tokens = (held >= 0).nonzero().squeeze(1)
        rest[sequence, held[tokens].long()] = inputs.host.view(SMALL.batch, SMALL.kv_tokens, -1)[sequence, tokens]
    for seed in range(5):
        chosen = OPERATOR.redraw(inputs, torch.Generator().manual_seed(10 + seed)).wanted
        inputs.wanted.copy_(chosen)
        answer = call.run()
        assert is_right(inputs, answer)
        places = answer - inputs.first_rows
        assert torch.equal(places == size, chosen == newest)


@BOTH
@pytest.mark.parametrize("name", ["torch_copy_missing", "sglang_jit"])
def test_one_that_copies_nothing_is_found(dtype, name, monkeypatch):
    foreign_kernels.install(monkeypatch)
    right = next(c for c in CANDIDATES if c.operator == OPERATOR.name and c.name == name)

    def idle(inputs):
        return right.bind(replace(inputs, buffer=inputs.buffer.clone()))  # the right places; the rows go elsewhere

    case = KernelCase(OPERATOR, SMALL, dtype, "cpu", seed=0)
    found = examine(case, [right, replace(right, name="idle", bind=idle)]).verdicts
    assert found[name].is_right
    assert found[name].rows >= 256
    assert not found["idle"].is_right


def test_one_wrong_row_among_thousands_is_found():
    def bind(inputs):
        call = COPIES.bind(inputs)

        def nearly():
            answer = call()
            inputs.buffer[answer[0, 1].long()] += 1
            return answer

        return nearly

    found = examine(KernelCase(OPERATOR, SMALL, "bf16", "cpu", seed=0), [replace(COPIES, bind=bind)]).verdicts[
        COPIES.name
    ]
    assert not found.is_right


def test_a_place_in_another_sequences_rows_or_for_no_token_is_wrong():
    shape = OperatorShape("small", 8, 2, 1, 40)  # fewer tokens than are selected
    inputs = OPERATOR.make(shape, "bf16", torch.Generator().manual_seed(0))
    right, rows = COPIES.bind(inputs)(), torch.arange(2)
    assert bool(OPERATOR.pick(inputs, right, rows).isfinite().all())
    for sequence, number, place in (
        (0, 0, right[0, 0] + len(inputs.buffer) // 2),
        (1, 0, right[1, 0] - len(inputs.buffer) // 2),
        (0, -1, 3),
    ):
        wrong = right.clone()
        wrong[sequence, number] = place
        assert not bool(OPERATOR.pick(inputs, wrong, rows).isfinite().all())


def test_timed_calls_are_renewed_each(monkeypatch):
    foreign_kernels.install(monkeypatch)
    copied = []

    def counting(swapped, *tables):
        missed, victims = swapped(*tables)
        copied.append(len(missed))
        return missed, victims

    monkeypatch.setattr(foreign_kernels, "_swapped_in", partial(counting, foreign_kernels._swapped_in))
    case = KernelCase(OPERATOR, SMALL, "bf16", "cpu", seed=0)
    kept = examine(case, [SGLANG], keep=2).kept
    [told] = time_interleaved(case, [SGLANG], kept, TimingLimits(min_samples=6, max_samples=6, half_width=1e6))
    assert told["status"] == "ok"
    assert len(copied) > 6 * SMALL.batch
    assert set(copied) == {missing(SMALL)}


def test_why_sglangs_kernel_does_not_run():
    assert why_not_here(SGLANG, KernelDevice("cpu", "cpu")) == "needs a GPU"
    if find_spec("sglang") is None:
        assert why_not_here(SGLANG, KernelDevice("cuda", "sm90")) == "sglang is not installed"
    assert SGLANG.limit(parse("v3.2-h128-b1-q1-kv6144")).startswith("sequences of up to 6144 tokens lie in the buffer")
    assert all(SGLANG.limit(shape) is None for shape in (*OPERATOR.small, *OPERATOR.grid()))


@BOTH
def test_the_floor_counts_missing_rows_once_over_the_link_and_once_into_the_buffer(dtype):
    cost = OPERATOR.cost(GRID, dtype)
    assert cost.link_bytes == 2 * 205 * (656 if dtype == "fp8" else 1152)
    assert cost.bytes == 2 * cost.link_bytes + 12 * 2 * 2048
