"""The weights that were trained: from a safetensors file with DeepSeek-V3.2's names to a model and its draft head."""

from __future__ import annotations

import hashlib
from pathlib import Path

import torch

from dsabench.errors import InputError
from dsabench.reference.engine.attention import Attention, AttentionWeights, absorbed
from dsabench.reference.engine.draft_head import DraftHead
from dsabench.reference.engine.layers import GatedMlp, rope_table
from dsabench.reference.engine.sizes import ModelSize
from dsabench.reference.engine.transformer import Block, Transformer

FILE = Path(__file__).parents[1] / "trained" / "model.safetensors"
SHA256 = "da8698ca4e0dea54853b05a3ddec227a3b42aa9e29297aca903a9556b391061a"
"""Of the file that the tables and scores of this package were made with."""


def load(
    size: ModelSize, dtype: torch.dtype, context: int, device: str, file: Path = FILE
) -> tuple[Transformer, DraftHead]:
    """Read the model and its draft head, whose layer is the last.

    Raises:
        InputError: safetensors is not installed, or the file is missing or is another one.

    """
    found = _read(file, dtype, device)
    blocks = tuple(_block(size, found, layer) for layer in range(size.layers))
    rope = rope_table(context, size.rope, size.rope_theta, "cpu").to(device, dtype)
    trunk = Transformer(size, found["embed_tokens.weight"], blocks, found["norm.weight"], found["lm_head.weight"], rope)
    return trunk, DraftHead(trunk, found[f"layers.{size.layers}.eh_proj.weight"], _block(size, found, size.layers))


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


def _block(size: ModelSize, found: dict[str, torch.Tensor], layer: int) -> Block:
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
    return Block(norms[0], Attention(size, weights, indexed), norms[1], mlp)
