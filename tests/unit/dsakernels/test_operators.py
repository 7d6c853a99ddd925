from __future__ import annotations

import pytest
import torch

from dsakernels.candidates import CANDIDATES
from dsakernels.candidates.candidate import KernelCandidate, KernelDevice, RequiredPackage, why_not_here
from dsakernels.operator import relative_error
from dsakernels.operators import OPERATORS
from dsakernels.shape import OperatorShape, parse

CPU = [(c, d) for c in CANDIDATES if why_not_here(c, KernelDevice("cpu", "cpu")) is None for d in c.dtypes]


def answers(candidate, dtype, shape, seed=0):
    operator = OPERATORS[candidate.operator]
    inputs = operator.make(shape, dtype, torch.Generator().manual_seed(seed))
    rows = torch.randperm(operator.rows(shape))[:48]
    return operator.pick(inputs, candidate.bind(inputs)(), rows), operator.expected(inputs, rows)


@pytest.mark.parametrize(("candidate", "dtype"), CPU, ids=[f"{c.operator}-{c.name}-{d}" for c, d in CPU])
def test_candidates_are_right_on_every_small_shape(candidate, dtype):
    operator = OPERATORS[candidate.operator]
    for shape in operator.small:
        assert relative_error(*answers(candidate, dtype, shape)) <= operator.tolerance[dtype]


@pytest.mark.parametrize("name", OPERATORS)
def test_every_operator_has_two_candidates_on_a_cpu_a_floor_and_a_grid(name):
    operator = OPERATORS[name]
    for dtype in operator.dtypes:
        assert len({c.name for c, d in CPU if c.operator == name and d == dtype}) >= 2
        for shape in (*operator.small, *operator.grid()):
            assert operator.cost(shape, dtype).bytes > 0
    assert len({shape.id for shape in operator.grid()}) == len(operator.grid()) >= 5


@pytest.mark.parametrize("name", OPERATORS)
def test_inputs_are_fresh_and_reproducible(name):
    operator = OPERATORS[name]
    rows = torch.arange(2)

    def expected(seed):
        inputs = operator.make(operator.small[-1], operator.dtypes[0], torch.Generator().manual_seed(seed))
        return operator.expected(inputs, rows)

    assert torch.equal(expected(1), expected(1))
    assert not torch.equal(expected(1), expected(2))


def test_selection_is_local_and_sees_no_later_token():
    shape = OperatorShape("small", 8, 1, 64, 2048)
    inputs = OPERATORS["sparse_prefill"].make(shape, "bf16", torch.Generator().manual_seed(0))
    seen = torch.arange(2048 - 64 + 1, 2048 + 1).unsqueeze(1)
    assert bool((inputs.selected < seen).all())
    assert float(((seen - inputs.selected) <= 1024).float().mean()) > 0.8  # half of the tokens would be 0.5
    assert all(len(set(row)) == 64 for row in inputs.selected.tolist())
    assert not bool((inputs.q == 0).any() or (inputs.cache == 0).any())


def test_the_sums_over_queries_that_costs_rest_on():
    for shape in (
        OperatorShape("small", 8, 2, 96, 96),
        OperatorShape("small", 8, 1, 10, 69),
        OperatorShape("small", 8, 3, 4, 512),
    ):
        seen = list(range(shape.kv_tokens - shape.q_tokens + 1, shape.kv_tokens + 1)) * shape.batch
        assert shape.visible == sum(seen)
        assert shape.selected == sum(min(n, 64) for n in seen)


def test_a_shape_is_its_id():
    shape = OperatorShape("v3.2", 16, 4, 1024, 32768)
    assert parse(shape.id) == shape
    with pytest.raises(ValueError, match="not a shape"):
        parse("v3.2-b1")
    with pytest.raises(ValueError, match="no more new than cached"):
        parse("v3.2-h16-b1-q64-kv32")


def test_topk_that_takes_a_token_twice_or_of_another_sequence_is_wrong():
    operator = OPERATORS["topk_select"]
    shape = OperatorShape("small", 8, 2, 1, 256)
    inputs = operator.make(shape, "bf16", torch.Generator().manual_seed(0))
    right = next(c for c in CANDIDATES if c.name == "torch_topk").bind(inputs)()
    rows = torch.arange(2)
    wanted = operator.expected(inputs, rows)
    assert relative_error(operator.pick(inputs, right, rows), wanted) == 0
    for spoil in (right[0, 1], right[1, 0], torch.tensor(1 << 20), torch.tensor(-7)):
        wrong = right.clone()
        wrong[0, 0] = spoil
        assert not relative_error(operator.pick(inputs, wrong, rows), wanted) <= operator.tolerance["bf16"]


def test_a_logit_smaller_by_one_bit_is_wrong_in_place_of_the_larger():
    operator = OPERATORS["topk_select"]
    shape = OperatorShape("v3.2", 128, 1, 1, 16384)
    inputs = operator.make(shape, "bf16", torch.Generator().manual_seed(0))
    order = inputs.logits[0].argsort(descending=True)
    inputs.logits[0, order[inputs.k]] = inputs.logits[0, order[inputs.k - 1]].nextafter(torch.tensor(-torch.inf))
    rows, right = torch.arange(1), inputs.slots[order[: inputs.k]].unsqueeze(0)
    wrong = right.clone()
    wrong[0, -1] = inputs.slots[order[inputs.k]]
    errors = [
        relative_error(operator.pick(inputs, out, rows), operator.expected(inputs, rows)) for out in (right, wrong)
    ]
    assert errors[0] <= operator.tolerance["bf16"] < errors[1]


def here(**where):
    return why_not_here(
        KernelCandidate("x", "sparse_decode", "", ("bf16",), lambda _: None, **where), KernelDevice("cpu", "cpu")
    )


def test_why_a_candidate_does_not_run_here():
    assert here() is None
    assert here(archs=("sm90", "sm100")) == "runs on sm90, sm100, this is cpu"
    assert here(package=RequiredPackage("nothing", ("no-such-thing", "older-name"), "1")) == (
        "no-such-thing or older-name is not installed"
    )
    assert here(package=RequiredPackage("numpy", ("numpy",), "1.0")) is None
    assert "needs 99 or newer" in here(package=RequiredPackage("numpy", ("numpy",), "99"))
    assert "needs 0.1 or newer, older than 1.0" in here(package=RequiredPackage("numpy", ("numpy",), "0.1", "1.0"))
    assert "does not import" in here(package=RequiredPackage("numpy.no_such_module", ("numpy",), "1.0"))


@pytest.mark.parametrize("dtype", ["bf16", "fp8"])
def test_one_logit_whose_terms_cancel_is_held_against_its_terms(dtype):
    """The first decode step sees one token: its only logit may be next to nothing, its rounding errors are not."""
    operator, shape, rows = OPERATORS["indexer_paged"], OperatorShape("v3.2", 128, 1, 1, 1), torch.arange(1)
    candidate = next(c for c in CANDIDATES if c.name == "torch_by_head" and c.operator == operator.name)
    for seed in range(40):
        inputs = operator.make(shape, dtype, torch.Generator().manual_seed(seed))
        found, wanted = candidate.bind(inputs)(), operator.expected(inputs, rows)
        norms = operator.norms(inputs, rows)
        assert relative_error(operator.pick(inputs, found, rows), wanted, norms=norms) <= operator.tolerance[dtype]
        assert relative_error(wanted + 0.03 * norms, wanted, norms=norms) > operator.tolerance[dtype]


def test_with_many_tokens_the_terms_norm_is_the_logits():
    operator, shape, rows = OPERATORS["indexer_ragged"], OperatorShape("v3.2", 128, 1, 16, 512), torch.arange(16)
    inputs = operator.make(shape, "bf16", torch.Generator().manual_seed(0))
    ratio = operator.norms(inputs, rows) / operator.expected(inputs, rows).norm(dim=-1)
    assert 0.4 < float(ratio.min()) <= float(ratio.max()) < 2
