from __future__ import annotations

import pytest
import torch

from dsakernels import attention
from dsakernels.kv_layout import PackedLayout, pack, unpack

LAYOUT = PackedLayout(32, 16)
SCALE = 0.17


def plain(q, rows, visible):
    """[T, H, D] × [L, D] with a mask [T, L], in float64."""
    scores = torch.einsum("thd,ld->htl", q.double(), rows.double()) * SCALE
    weights = scores.masked_fill(~visible, -torch.inf).softmax(-1)
    return torch.einsum("htl,lc->thc", weights, rows[:, : LAYOUT.latent].double())


def case(tokens=70, length=150, k=24, seed=0):
    generator = torch.Generator().manual_seed(seed)
    q = torch.randn(tokens, 4, 48, generator=generator)
    rows = torch.randn(length, 48, generator=generator)
    indices = torch.stack([torch.randperm(length, generator=generator)[:k] for _ in range(tokens)])
    return q, rows, indices


def mask_of(indices, length):
    visible = torch.zeros(len(indices), length + 1, dtype=torch.bool)
    visible.scatter_(1, indices.where(indices >= 0, length), value=True)
    return visible[:, :length]


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.bfloat16, 3e-2)])
def test_sparse_equals_masked_dense(dtype, tolerance):
    q, rows, indices = case()
    indices[3, 5:] = -1  # a row with fewer tokens than K
    rows = rows.to(torch.bfloat16)
    out = attention.flashmla_sparse(q.to(dtype), rows, indices, latent=32, scale=SCALE)
    assert out.dtype == dtype
    expected = plain(q.to(dtype), rows, mask_of(indices, len(rows)))
    assert (out.double() - expected).abs().max() < tolerance


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_both_sparse_kernels_give_the_same_bits(dtype):
    q, rows, indices = case(tokens=9)
    indices[2, 1:] = -1
    packed = pack(rows, LAYOUT)
    one = attention.flashmla_kv(q.to(dtype), packed, indices, layout=LAYOUT, scale=SCALE)
    prefix = unpack(packed, LAYOUT, dtype)
    other = attention.flashmla_sparse(q.to(dtype), prefix, indices, latent=32, scale=SCALE)
    assert torch.equal(one, other)


def test_blocks_of_queries_do_not_show():
    q, rows, indices = case(tokens=5000, k=24)  # more than one block
    whole = attention.flashmla_sparse(q, rows, indices, latent=32, scale=SCALE)
    last = attention.flashmla_sparse(q[-3:], rows, indices[-3:], latent=32, scale=SCALE)
    assert torch.allclose(whole[-3:], last, atol=1e-5)


def test_sparse_attention_with_everything_selected_is_dense():
    q, rows, _ = case(tokens=30, length=100)
    lengths = torch.arange(70, 100) + 1
    visible = torch.arange(100) < lengths.unsqueeze(1)
    everything = torch.arange(100).expand(30, -1).where(visible, -1)
    sparse = attention.flashmla_sparse(q, rows, everything, latent=32, scale=SCALE)
    assert torch.allclose(sparse.double(), plain(q, rows, visible), atol=1e-5)


@pytest.mark.parametrize("tokens", [1, 100, 300])
def test_mha_is_causal_attention_over_prefix_and_new_tokens(tokens):
    generator = torch.Generator().manual_seed(3)
    length = 300
    q = torch.randn(2, tokens, 24, generator=generator)
    k, v = torch.randn(2, length, 24, generator=generator), torch.randn(2, length, 16, generator=generator)
    visible = torch.arange(length) <= torch.arange(length - tokens, length).unsqueeze(1)
    scores = (q @ k.transpose(1, 2) * SCALE).masked_fill(~visible, -torch.inf)
    assert torch.allclose(attention.mha(q, k, v, scale=SCALE), scores.softmax(-1) @ v, atol=1e-5)
