from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
import torch

import q8_rounding
from dsabench.kernelbench import measure
from dsabench.kernelbench.correctness import ROWS, CandidateFault, KernelCase, _some_rows, examine, poison, try_call
from dsakernels.candidates import CANDIDATES
from dsakernels.operators import OPERATORS
from dsakernels.operators.kv_expand import split
from dsakernels.shape import OperatorShape
from unit.dsakernels import foreign_kernels

DECODE = OPERATORS["sparse_decode"]
CASE = KernelCase(DECODE, OperatorShape("small", 8, 8, 1, 256), "bf16", "cpu", seed=0)
RIGHT = next(c for c in CANDIDATES if c.operator == "sparse_decode" and c.name == "torch_flashmla_sparse")


def verdict(spoil):
    def bind(inputs):
        call = RIGHT.bind(inputs)
        return lambda: spoil(call())

    return examine(CASE, [replace(RIGHT, bind=bind)]).verdicts[RIGHT.name]


def test_a_right_candidate_is_right_on_256_rows():
    found = verdict(lambda out: out)
    assert found.is_right
    assert found.rows >= 256


def test_one_wrong_row_of_eight_is_found():
    def spoil(out):
        out[3] *= 1.1
        return out

    found = verdict(spoil)
    assert not found.is_right
    assert found.rel_err == pytest.approx(0.1, abs=0.02)


def test_rows_that_a_second_call_leaves_unwritten_are_found():
    kept = {}

    def stale(out):
        return kept.setdefault(out.shape, out)  # the same memory each time, written only once

    found = verdict(stale)
    assert not found.is_right
    assert found.rel_err is None


PREFILL, STEP, SWAP = (
    OperatorShape("small", 8, 1, 320, 320),
    OperatorShape("small", 8, 66, 4, 64),
    OperatorShape("small", 8, 264, 1, 256),
)
STEPS = {"indexer_paged": STEP, "sparse_decode": STEP, "mtp_verify": STEP, "hisparse_swap_in": SWAP}
"""Of more rows than are drawn."""


@pytest.mark.parametrize("name", OPERATORS)
def test_one_row_left_unwritten_that_was_not_drawn_is_found(name):
    operator = OPERATORS[name]
    right = next(c for c in CANDIDATES if c.operator == name and c.name.startswith("torch"))
    case = KernelCase(operator, STEPS.get(name, PREFILL), operator.dtypes[0], "cpu", seed=0)
    rows = _some_rows(case, 0, ROWS).tolist()
    missed = next(row for row in range(operator.rows(case.shape)) if row not in rows)

    def bind(inputs):
        call = right.bind(inputs)

        def leave_one():
            out = call().clone()
            poison((out if out.dim() > 1 else split(inputs, out)[0])[missed])
            return out

        return leave_one

    found = examine(case, [replace(right, bind=bind), replace(right, name="right")]).verdicts
    assert found["right"].is_right
    assert found[right.name].rel_err is None


def test_the_first_and_the_last_row_are_looked_at_whatever_is_drawn():
    for seed in range(5):
        rows = _some_rows(KernelCase(OPERATORS["sparse_prefill"], PREFILL, "bf16", "cpu", seed), 0, ROWS).tolist()
        assert {0, PREFILL.total_q - 1} <= set(rows)
        assert ROWS <= len(set(rows)) == len(rows)


def test_one_wrong_value_of_one_head_does_not_hide_among_128():
    right = next(c for c in CANDIDATES if c.operator == "kv_expand" and c.name == "torch_mm")

    def bind(inputs):
        call = right.bind(inputs)

        def nearly():
            out = call()
            split(inputs, out)[0][1, 77, -1] *= 2
            return out

        return nearly

    case = KernelCase(OPERATORS["kv_expand"], OperatorShape("v3.2", 128, 1, 1, 4), "bf16", "cpu", seed=0)
    found = examine(case, [replace(right, bind=bind), replace(right, name="right")]).verdicts
    assert found["right"].is_right
    assert not found[right.name].is_right


def test_a_cpu_without_the_memory_is_no_fault_of_a_kernel():
    vast = KernelCase(DECODE, OperatorShape("small", 8, 1, 1, 10**13), "bf16", "cpu", seed=0)
    found = try_call(lambda: examine(vast, [RIGHT]), "cpu")
    assert isinstance(found, CandidateFault)
    assert found.is_memory


def test_a_swap_that_copies_nothing_is_found_behind_one_that_copied():
    right = next(c for c in CANDIDATES if c.name == "torch_copy_missing")

    def lazy(inputs):
        return right.bind(replace(inputs, buffer=inputs.buffer.clone()))  # the right places; the rows go elsewhere

    case = KernelCase(OPERATORS["hisparse_swap_in"], OperatorShape("small", 8, 8, 1, 256), "bf16", "cpu", seed=0)
    found = examine(case, [right, replace(right, name="lazy", bind=lazy)]).verdicts
    assert found["torch_copy_missing"].is_right
    assert not found["lazy"].is_right


def test_one_that_raises_or_finds_no_memory_leaves_the_others_their_verdict():
    def raises(inputs):
        raise RuntimeError("no kernel image\nand more")

    def starves(inputs):
        raise torch.OutOfMemoryError("CUDA out of memory")

    broken = [replace(RIGHT, name="a", bind=raises), replace(RIGHT, name="b", bind=starves)]
    found = examine(CASE, [*broken, RIGHT], keep=3)
    assert found.verdicts["a"] == CandidateFault("RuntimeError: no kernel image")
    assert found.verdicts["b"] == CandidateFault("CUDA out of memory", is_memory=True)
    assert found.verdicts[RIGHT.name].is_right
    assert len(found.kept) == 3


def test_draws_over_one_cache_have_queries_of_their_own():
    first, second = itertools.islice(CASE.draws(), 2)
    assert first.cache is second.cache
    assert not torch.equal(first.q, second.q)
    assert not torch.equal(first.indices, second.indices)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float8_e4m3fn, torch.uint8, torch.int32])
def test_poison_changes_every_dtype(dtype):
    tensor = torch.zeros(4, dtype=torch.float32).to(dtype)
    poison(tensor)
    values = tensor.double()
    assert bool((values.isnan() | (values == 255) | (values == -7)).all())


def test_one_selected_row_that_is_missed_is_found_in_the_head_that_needs_it():
    def bind(inputs):
        indices = inputs.indices.clone()
        indices[:, 7] = -1
        return RIGHT.bind(replace(inputs, indices=indices))

    assert not examine(CASE, [replace(RIGHT, bind=bind)]).verdicts[RIGHT.name].is_right


Q8 = next(c for c in CANDIDATES if c.name == "flashmla_sparse_q8")
FRESH = KernelCase(OPERATORS["sparse_prefill"], OperatorShape("v3.2", 16, 1, 40, 40), "fp8", "cpu", seed=0)


def test_one_that_rounds_its_inputs_is_held_to_what_it_was_given_and_its_whole_error_is_told(monkeypatch):
    foreign_kernels.install(monkeypatch)
    found = examine(FRESH, [Q8]).verdicts[Q8.name]
    assert found.is_right
    assert found.rounded_err < 0.02
    assert found.rel_err > 0.06


def test_a_fault_that_hides_behind_rounded_inputs_is_found(monkeypatch):
    foreign_kernels.install(monkeypatch)

    def bind(inputs):
        call = Q8.bind(inputs)
        return lambda: call() * 1.1

    candidate = replace(Q8, bind=bind)
    found = examine(FRESH, [candidate]).verdicts[Q8.name]
    assert not found.is_right
    assert found.rel_err < 0.3  # what it was held to against the exact reference
    assert measure._check_fields(found)["reason"] == (
        "relative error of the reference over inputs rounded as it does above 0.08"
    )


@pytest.mark.parametrize("keys", [1, 40, 2048])
def test_what_rounded_weights_leave_is_within_the_tolerance_of_q8(keys):
    generator = torch.Generator().manual_seed(0)
    exact, same = (float(error.max()) for error in q8_rounding.errors(q8_rounding.cache(keys, generator), generator))
    assert same < Q8.tolerance / 2
    assert exact > Q8.tolerance or keys == 1
