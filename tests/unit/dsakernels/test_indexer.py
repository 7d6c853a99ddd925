from __future__ import annotations

import torch

from dsakernels import indexer


def test_both_forms_equal_the_formula():
    torch.manual_seed(0)
    q, weights, keys = torch.randn(5, 3, 16), torch.randn(5, 3), torch.randn(40, 16)
    expected = torch.einsum("ti,tis->ts", weights, torch.einsum("tie,se->tis", q, keys).relu())
    assert torch.allclose(indexer.logits(q, weights, keys), expected, atol=1e-5)
    batched = indexer.batched_logits(q, weights, keys.expand(5, -1, -1))
    assert torch.allclose(batched, expected, atol=1e-5)


def test_bfloat16_sums_heads_in_float32():
    torch.manual_seed(0)
    q, weights, keys = torch.randn(8, 4, 32).bfloat16(), torch.randn(8, 4), torch.randn(64, 32).bfloat16()
    exact = indexer.logits(q.float(), weights, keys.float())
    result = indexer.logits(q, weights, keys)
    assert result.dtype == torch.float32
    assert (result - exact).abs().max() < 2**-7 * exact.abs().max()
