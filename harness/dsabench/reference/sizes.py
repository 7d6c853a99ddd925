"""The models that can be served. Their weights are random, so a model is its widths."""

from __future__ import annotations

import math
from dataclasses import dataclass

VOCABULARY = 259
"""256 bytes, then begin, end and padding; see `tokenizer`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSize:
    """Widths of a DSA transformer; beside each its name in DeepSeek-V3.2's config.json and its value there."""

    name: str
    layers: int  # num_hidden_layers, 61
    hidden: int  # hidden_size, 7168
    intermediate: int  # intermediate_size of the dense MLP, 18432
    heads: int  # num_attention_heads, 128
    q_lora: int  # q_lora_rank, 1536
    latent: int  # kv_lora_rank, 512: C
    rope: int  # qk_rope_head_dim, 64: R
    nope: int  # qk_nope_head_dim, 128
    value: int  # v_head_dim, 128
    index_heads: int  # index_n_heads, 64: I
    index_dim: int  # index_head_dim, 128, of which the first R are rotated: E
    index_topk: int  # index_topk, 2048: K
    context: int  # max_position_embeddings, 163840: longest sequence in tokens
    pool_tokens: int  # tokens in the KV pool unless --max-total-tokens says otherwise
    max_running: int  # requests in the running batch unless --max-running-requests says otherwise
    rope_theta: float = 10000.0
    norm_eps: float = 1e-6

    @property
    def row(self) -> int:
        """Values cached per token and layer, D = C + R."""
        return self.latent + self.rope

    @property
    def attention_scale(self) -> float:
        """Scale of the attention scores, (qk_nope_head_dim + qk_rope_head_dim)^-½."""
        return 1.0 / math.sqrt(self.nope + self.rope)


_TINY = {"layers": 2, "hidden": 64, "intermediate": 128, "heads": 4, "q_lora": 32, "latent": 32, "rope": 16, "nope": 16}
_SMALL = {
    "layers": 4,
    "hidden": 256,
    "intermediate": 512,
    "heads": 8,
    "q_lora": 128,
    "latent": 128,
    "rope": 32,
    "nope": 32,
}
SIZES = {
    "tiny": ModelSize(name="tiny", **_TINY, value=16, index_heads=2, index_dim=32, index_topk=32,
                      context=2048, pool_tokens=8192, max_running=16),
    "small": ModelSize(name="small", **_SMALL, value=32, index_heads=4, index_dim=64, index_topk=128,
                       context=16384, pool_tokens=65536, max_running=64),
}  # fmt: skip
