"""Seeded random weights. The same seed gives the same model in every dtype and on every device."""

from __future__ import annotations

from dataclasses import replace

import torch

from dsabench.reference.engine.attention import Attention, AttentionWeights, absorbed
from dsabench.reference.engine.experts import MixtureOfExperts, Router
from dsabench.reference.engine.layers import GatedMlp, rope_table
from dsabench.reference.engine.sizes import VOCABULARY, Experts, ModelSize
from dsabench.reference.engine.transformer import Block, Transformer

_UNLIKELY = 0.25
_BIAS = 0.05
_PRINTABLE = slice(0x20, 0x7F)


class _Source:
    """Draws matrices in a fixed order, always as float32 on the CPU."""

    def __init__(self, seed: int, dtype: torch.dtype, device: str) -> None:
        self._generator = torch.Generator().manual_seed(seed)
        self.dtype, self.device = dtype, device

    def draw(self, out: int, into: int, scale: float = 1.0) -> torch.Tensor:
        """Draw [out, into] with standard deviation scale / √into, which keeps the size of activations."""
        drawn = torch.randn(out, into, generator=self._generator).mul_(scale * into**-0.5)
        return self.place(drawn)

    def ones(self, width: int) -> torch.Tensor:
        return torch.ones(width, dtype=self.dtype, device=self.device)

    def place(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.to(self.device, self.dtype)


def build(size: ModelSize, seed: int, dtype: torch.dtype, context: int, device: str) -> Transformer:
    """Make the model.

    The rows of the output projection for bytes that are no printable ASCII are shrunk, so that what a random model
    says is mostly readable.
    """
    source = _Source(seed, dtype, device)
    embedding = source.draw(VOCABULARY, size.hidden, scale=size.hidden**0.5)
    blocks = tuple(_block(size, source, layer) for layer in range(size.layers))
    head = source.draw(VOCABULARY, size.hidden)
    likely = head[_PRINTABLE].clone()
    head.mul_(_UNLIKELY)[_PRINTABLE] = likely
    rope = source.place(rope_table(context, size.rope, size.rope_theta, "cpu"))
    return Transformer(size, embedding, blocks, source.ones(size.hidden), head, rope)


def _block(size: ModelSize, source: _Source, layer: int) -> Block:
    branch = (2 * size.layers) ** -0.5  # so that the residual stream does not grow with depth (GPT-2, section 2.3)
    mlp: GatedMlp | MixtureOfExperts
    if size.experts is None or layer < size.experts.dense_layers:
        mlp = _mlp(size.hidden, size.intermediate, source, branch)
    else:
        mlp = _mixture(size.hidden, size.experts, source, branch)
    attention = replace(_attention(size, source, branch), indexed=size.has_indexer(layer))
    return Block(source.ones(size.hidden), attention, source.ones(size.hidden), mlp)


def _mlp(hidden: int, intermediate: int, source: _Source, branch: float) -> GatedMlp:
    return GatedMlp(source.draw(2 * intermediate, hidden), source.draw(hidden, intermediate, scale=branch))


def _mixture(hidden: int, widths: Experts, source: _Source, branch: float) -> MixtureOfExperts:
    """Experts as dense MLPs are; the router's bias is small against the scores, which lie around ½."""
    gate = source.draw(widths.routed, hidden)
    bias = source.draw(widths.routed, 1, scale=_BIAS).squeeze(1).float()
    shared, *routed = (_mlp(hidden, widths.intermediate, source, branch) for _ in range(1 + widths.routed))
    return MixtureOfExperts(Router(widths, gate, bias), shared, tuple(routed))


def _attention(size: ModelSize, source: _Source, branch: float) -> Attention:
    down = source.draw(size.q_lora + size.row + size.index_dim + size.index_heads, size.hidden)
    q_up = source.draw(size.heads * (size.nope + size.rope) + size.index_heads * size.index_dim, size.q_lora)
    kv_up = source.draw(size.heads * (size.nope + size.value), size.latent)
    weights = AttentionWeights(
        down=down,
        q_norm=source.ones(size.q_lora),
        kv_norm=source.ones(size.latent),
        index_norm=source.ones(size.index_dim),
        index_norm_bias=torch.zeros_like(source.ones(size.index_dim)),
        q_up=q_up,
        **absorbed(size, kv_up),
        out=source.draw(size.hidden, size.heads * size.value, scale=branch),
    )
    return Attention(size, weights)
