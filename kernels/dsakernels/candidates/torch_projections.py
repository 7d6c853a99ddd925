"""The products before and after attention, in plain PyTorch (on a GPU: cuBLAS, as sglang has it for bfloat16)."""

from __future__ import annotations

import torch

from dsakernels.candidates.candidate import Call, Candidate
from dsakernels.operators.absorb import AbsorbInputs
from dsakernels.operators.kv_expand import ExpandInputs, split


def _one_product(inputs: ExpandInputs) -> Call:
    """All heads in one product, then the keys are joined from it and the rotary part."""
    tokens, nope = inputs.shape.total_kv, inputs.shape.dimensions.nope

    def call() -> torch.Tensor:
        out = _buffer(inputs)
        torch.mm(inputs.latent, inputs.weight, out=out[: tokens * inputs.parts[0]].view(tokens, -1))
        product, keys = split(inputs, out)
        keys[..., :nope] = product[..., :nope]
        keys[..., nope:] = inputs.rope.unsqueeze(1)
        return out

    return call


def _by_head(inputs: ExpandInputs) -> Call:
    """A product a head, of the keys' and the values' columns."""
    heads, nope = inputs.shape.heads, inputs.shape.dimensions.nope
    weight = inputs.weight.view(len(inputs.weight), heads, -1).transpose(0, 1).contiguous()

    def call() -> torch.Tensor:
        out = _buffer(inputs)
        product, keys = split(inputs, out)
        product.copy_((inputs.latent @ weight).transpose(0, 1))
        keys[..., :nope] = product[..., :nope]
        keys[..., nope:] = inputs.rope.unsqueeze(1)
        return out

    return call


def _bmm(inputs: AbsorbInputs) -> Call:
    """Both write into their part of the answer."""
    latent, width = inputs.w_key.shape[2], inputs.w_key.shape[2] + inputs.w_value.shape[2]
    q, attended = inputs.q.transpose(0, 1), inputs.out.transpose(0, 1)

    def call() -> torch.Tensor:
        out = inputs.q.new_empty(*inputs.q.shape[:2], width)
        torch.bmm(q, inputs.w_key, out=out[..., :latent].transpose(0, 1))
        torch.bmm(attended, inputs.w_value, out=out[..., latent:].transpose(0, 1))
        return out

    return call


def _einsum(inputs: AbsorbInputs) -> Call:
    """Two einsums, joined."""

    def call() -> torch.Tensor:
        into = torch.einsum("thn,hnc->thc", inputs.q, inputs.w_key)
        back = torch.einsum("thc,hcf->thf", inputs.out, inputs.w_value)
        return torch.cat((into, back), dim=-1)

    return call


def _buffer(inputs: ExpandInputs) -> torch.Tensor:
    return inputs.latent.new_empty(inputs.shape.total_kv * sum(inputs.parts))


CANDIDATES = (
    Candidate("torch_mm", "kv_expand", "one product of all heads, keys joined", ("bf16",), _one_product),
    Candidate("torch_by_head", "kv_expand", "a product a head, keys joined", ("bf16",), _by_head),
    Candidate("torch_bmm", "absorb", "two batched products", ("bf16",), _bmm),
    Candidate("torch_einsum", "absorb", "two einsums", ("bf16",), _einsum),
)
