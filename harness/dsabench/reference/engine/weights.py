"""Where weights come from: drawn from a seed, or read from the file of those that were trained.

The same seed gives the same model in every dtype and on every device. The file is safetensors with DeepSeek-V3.2's names.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

import torch

from dsabench.errors import InputError
from dsabench.reference.engine.layers import ExpertRouter, GatedMlp, MixtureOfExperts, rope_table
from dsabench.reference.engine.mla import AttentionWeights, LatentAttention, absorbed
from dsabench.reference.engine.mtp import DraftHead
from dsabench.reference.engine.sizes import VOCABULARY, ExpertSizes, ModelSize
from dsabench.reference.engine.transformer import Transformer, TransformerBlock

FILE = Path(__file__).parents[1] / "trained" / "model.safetensors"
SHA256 = "06ed6ea186a99bc2e2afb5c161d5169ffa34ed6ffd1a2c1692fd753c9cf80545"
"""Of the file that the tables and scores of this package were made with."""
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


def random_model(size: ModelSize, seed: int, dtype: torch.dtype, context: int, device: str) -> Transformer:
    """Make the model.

    The rows of the output projection for bytes that are no printable ASCII are shrunk, so that what a random model
    says is mostly readable.
    """
    source = _Source(seed, dtype, device)
    embedding = source.draw(VOCABULARY, size.hidden, scale=size.hidden**0.5)
    blocks = tuple(_random_block(size, source, layer) for layer in range(size.layers))
    head = source.draw(VOCABULARY, size.hidden)
    likely = head[_PRINTABLE].clone()
    head.mul_(_UNLIKELY)[_PRINTABLE] = likely
    rope = source.place(rope_table(context, size.rope, size.rope_theta, "cpu"))
    return Transformer(size, embedding, blocks, source.ones(size.hidden), head, rope)


def _random_block(size: ModelSize, source: _Source, layer: int) -> TransformerBlock:
    branch = (2 * size.layers) ** -0.5  # so that the residual stream does not grow with depth (GPT-2, section 2.3)
    mlp: GatedMlp | MixtureOfExperts
    if size.experts is None or layer < size.experts.dense_layers:
        mlp = _mlp(size.hidden, size.intermediate, source, branch)
    else:
        mlp = _mixture(size.hidden, size.experts, source, branch)
    attention = replace(_attention(size, source, branch), indexed=size.has_indexer(layer))
    return TransformerBlock(source.ones(size.hidden), attention, source.ones(size.hidden), mlp)


def _mlp(hidden: int, intermediate: int, source: _Source, branch: float) -> GatedMlp:
    return GatedMlp(source.draw(2 * intermediate, hidden), source.draw(hidden, intermediate, scale=branch))


def _mixture(hidden: int, widths: ExpertSizes, source: _Source, branch: float) -> MixtureOfExperts:
    """Experts as dense MLPs are; the router's bias is small against the scores, which lie around ½."""
    gate = source.draw(widths.routed, hidden)
    bias = source.draw(widths.routed, 1, scale=_BIAS).squeeze(1).float()
    shared, *routed = (_mlp(hidden, widths.intermediate, source, branch) for _ in range(1 + widths.routed))
    return MixtureOfExperts(ExpertRouter(widths, gate, bias), shared, tuple(routed))


def _attention(size: ModelSize, source: _Source, branch: float) -> LatentAttention:
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
    return LatentAttention(size, weights)


def trained_model(
    size: ModelSize, dtype: torch.dtype, context: int, device: str, file: Path = FILE
) -> tuple[Transformer, DraftHead]:
    """Read the model and its draft head, whose layer is the last.

    Raises:
        InputError: safetensors is not installed, or the file is missing or is another one.

    """
    found = _read(file, dtype, device)
    blocks = tuple(_trained_block(size, found, layer) for layer in range(size.layers))
    rope = rope_table(context, size.rope, size.rope_theta, "cpu").to(device, dtype)
    trunk = Transformer(size, found["embed_tokens.weight"], blocks, found["norm.weight"], found["lm_head.weight"], rope)
    return trunk, DraftHead(
        trunk, found[f"layers.{size.layers}.eh_proj.weight"], _trained_block(size, found, size.layers)
    )


def _read(file: Path, dtype: torch.dtype, device: str) -> dict[str, torch.Tensor]:
    try:
        from safetensors.torch import load as parse  # noqa: PLC0415 (only this model needs it)
    except ImportError as error:
        raise InputError("--model trained needs the package safetensors (pip install safetensors)") from error
    try:
        data = file.read_bytes()
    except OSError as error:
        raise InputError(f"{file}: {error.strerror}") from error
    if file == FILE and hashlib.sha256(data).hexdigest() != SHA256:
        raise InputError(
            f"{file}: not the file that this version was released with (its sha256 differs); install it again"
        )
    return {name: tensor.to(device, dtype) for name, tensor in parse(data).items()}


def _trained_block(size: ModelSize, found: dict[str, torch.Tensor], layer: int) -> TransformerBlock:
    def of(name: str) -> torch.Tensor:
        return found[f"layers.{layer}.{name}"]

    attention = "self_attn."
    down = ("q_a_proj.weight", "kv_a_proj_with_mqa.weight", "indexer.wk.weight", "indexer.weights_proj.weight")
    weights = AttentionWeights(
        down=torch.cat([of(attention + name) for name in down]),
        q_norm=of(f"{attention}q_a_layernorm.weight"),
        kv_norm=of(f"{attention}kv_a_layernorm.weight"),
        index_norm=of(f"{attention}indexer.k_norm.weight"),
        index_norm_bias=of(f"{attention}indexer.k_norm.bias"),
        q_up=torch.cat((of(f"{attention}q_b_proj.weight"), of(f"{attention}indexer.wq_b.weight"))),
        **absorbed(size, of(f"{attention}kv_b_proj.weight")),
        out=of(f"{attention}o_proj.weight"),
    )
    mlp = GatedMlp(torch.cat((of("mlp.gate_proj.weight"), of("mlp.up_proj.weight"))), of("mlp.down_proj.weight"))
    indexed = layer == size.layers or size.has_indexer(layer)  # the draft head selects for itself
    norms = of("input_layernorm.weight"), of("post_attention_layernorm.weight")
    return TransformerBlock(norms[0], LatentAttention(size, weights, indexed), norms[1], mlp)
