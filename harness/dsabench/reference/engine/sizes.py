"""The models that can be served: their widths. The weights of `trained` are in a file, those of the others random."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

VOCABULARY = 259
"""256 bytes, then begin, end and padding; see `tokenizer`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertSizes:
    """Widths of the mixture of experts; beside each its name in DeepSeek-V3.2's config.json and its value there."""

    routed: int  # n_routed_experts, 256
    per_token: int  # num_experts_per_tok, 8
    groups: int  # n_group, 8
    kept_groups: int  # topk_group, 4
    intermediate: int  # moe_intermediate_size, 2048: of each expert, and of the shared one (n_shared_experts, 1)
    scaling: float  # routed_scaling_factor, 2.5
    dense_layers: int  # first_k_dense_replace, 3: layers before the first that has experts


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
    experts: ExpertSizes | None = None  # None has a dense MLP in every layer
    index_topk_pattern: str | None = None  # the same; None has an indexer in every layer
    is_trained: bool = False

    @property
    def row(self) -> int:
        """Values cached per token and layer, D = C + R."""
        return self.latent + self.rope

    @property
    def packed_row_bytes(self) -> int:
        """Bytes per token and layer of an fp8 cache: the latent, a float32 scale for each quarter of it, the rope part in bfloat16."""
        return self.latent + 4 * 4 + 2 * self.rope

    def has_indexer(self, layer: int) -> bool:
        """Whether a layer selects tokens itself, or attends to what the layer before it did."""
        return self.index_topk_pattern is None or self.index_topk_pattern[layer] == "F"

    @property
    def attention_scale(self) -> float:
        """Scale of the attention scores, (qk_nope_head_dim + qk_rope_head_dim)^-½."""
        return 1.0 / math.sqrt(self.nope + self.rope)


_TINY = ModelSize(
    name="tiny", layers=2, hidden=64, intermediate=128, heads=4, q_lora=32, latent=32, rope=16, nope=16, value=16,
    index_heads=2, index_dim=32, index_topk=32, context=2048, pool_tokens=8192, max_running=16,
)  # fmt: skip
_SMALL = ModelSize(
    name="small", layers=4, hidden=256, intermediate=512, heads=8, q_lora=128, latent=128, rope=32, nope=32, value=32,
    index_heads=4, index_dim=64, index_topk=128, context=16384, pool_tokens=65536, max_running=64,
)  # fmt: skip
_TRAINED = ModelSize(
    name="trained", layers=6, hidden=256, intermediate=768, heads=8, q_lora=128, latent=128, rope=32, nope=32, value=32,
    index_heads=4, index_dim=64, index_topk=64, context=16384, pool_tokens=65536, max_running=64,
    is_trained=True,
)  # fmt: skip
_TINY_EXPERTS = ExpertSizes(
    routed=8, per_token=2, groups=4, kept_groups=2, intermediate=32, scaling=1.5, dense_layers=1
)
_SMALL_EXPERTS = ExpertSizes(
    routed=16, per_token=4, groups=4, kept_groups=2, intermediate=128, scaling=1.5, dense_layers=1
)
SIZES = {
    size.name: size
    for size in (
        _TINY,
        _SMALL,
        replace(_TINY, name="tiny-moe", experts=_TINY_EXPERTS),
        replace(_SMALL, name="small-moe", experts=_SMALL_EXPERTS),
        _TRAINED,
    )
}
