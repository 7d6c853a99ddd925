"""The reference model in the form that can be trained: the same mathematics as `transformer`, whole sequences at once.

Parameters have the names of DeepSeek-V3.2's checkpoints, so that what is saved reads like one of those. The rotated
parts lie in two halves (GPT-NeoX's layout), as the engine has them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import nn
from torch.nn import functional

from dsabench.reference.engine.layers import rms_norm, rope_table, rotate, rotate_first
from dsabench.reference.engine.sizes import VOCABULARY, ModelSize

_ROWS = 512
"""Queries whose selection is made at once."""


@dataclass(frozen=True, slots=True)
class AttentionMode:
    """What a query attends to."""

    kind: Literal["dense", "sparse"]
    topk: int | None = None
    """Tokens that the indexer selects; None is the model's own number, or all where the kind is dense."""
    random_scores: bool = False
    """Select at random: what is left of the accuracy without the indexer."""


DENSE, SPARSE = AttentionMode("dense"), AttentionMode("sparse")


@dataclass(frozen=True, slots=True)
class Pass:
    """What all layers of one forward pass share."""

    cos: torch.Tensor
    """[T, 1, R/2]."""
    sin: torch.Tensor
    mode: AttentionMode
    sampled: torch.Tensor | None
    """[B, S] queries of each sequence at which the indexer is held against the attention; None asks for no loss."""


class State(NamedTuple):
    """What a layer, or all of them, make of a sequence."""

    hidden: torch.Tensor
    """The residual stream, [B, T, hidden]."""
    divergence: torch.Tensor
    """KL from the attention to the indexer, mean over layers and sampled queries; 0 where none are sampled."""


class Norm(nn.Module):
    """RMSNorm that computes in its input's dtype, as the engine does."""

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(width)), eps

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map x [..., width] to the same shape."""
        return rms_norm(x, self.weight.to(x.dtype), self.eps)


class Indexer(nn.Module):
    """The lightning indexer (DeepSeek-V3.2-Exp, equation 1). Its inputs are cut from the graph: it learns from the attention only."""

    def __init__(self, size: ModelSize) -> None:
        super().__init__()
        self.size = size
        self.wq_b = _linear(size.q_lora, size.index_heads * size.index_dim)
        self.wk = _linear(size.hidden, size.index_dim)
        self.k_norm = nn.LayerNorm(size.index_dim, eps=size.norm_eps)
        self.weights_proj = _linear(size.hidden, size.index_heads)

    def forward(
        self, x: torch.Tensor, q_latent: torch.Tensor, now: Pass
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Take x [B, T, hidden], q_latent [B, T, q_lora] → queries [B, T, I, E], keys [B, T, E], weights [B, T, I]."""
        size, x, q_latent = self.size, x.detach(), q_latent.detach()
        q = rotate_first(self.wq_b(q_latent).unflatten(-1, (size.index_heads, size.index_dim)), now.cos, now.sin)
        k = rotate_first(self.k_norm(self.wk(x)).unsqueeze(2), now.cos, now.sin).squeeze(2)
        return q, k, self.weights_proj(x).float() * (size.index_heads * size.index_dim) ** -0.5


def index_logits(q: torch.Tensor, keys: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """Take q [B, S, I, E], keys [B, T, E], weights [B, S, I] → [B, S, T] float32."""
    total = torch.zeros(*q.shape[:2], keys.shape[1], device=q.device)
    for head in range(q.shape[2]):
        products = (q[:, :, head] @ keys.transpose(1, 2)).relu()
        total = total + products.float() * weights[:, :, head, None]
    return total


class Attention(nn.Module):
    """Multi-head latent attention with its indexer."""

    def __init__(self, size: ModelSize) -> None:
        super().__init__()
        self.size = size
        self.q_a_proj = _linear(size.hidden, size.q_lora)
        self.q_a_layernorm = Norm(size.q_lora, size.norm_eps)
        self.q_b_proj = _linear(size.q_lora, size.heads * (size.nope + size.rope))
        self.kv_a_proj_with_mqa = _linear(size.hidden, size.row)
        self.kv_a_layernorm = Norm(size.latent, size.norm_eps)
        self.kv_b_proj = _linear(size.latent, size.heads * (size.nope + size.value))
        self.o_proj = _linear(size.heads * size.value, size.hidden, (2 * size.layers) ** -0.5)
        self.indexer = Indexer(size)

    def forward(self, x: torch.Tensor, now: Pass) -> State:
        """Map x [B, T, hidden] to [B, T, hidden]."""
        size, batch, tokens = self.size, *x.shape[:2]
        q_latent = self.q_a_layernorm(self.q_a_proj(x))
        q_nope, q_rope = self.q_b_proj(q_latent).unflatten(-1, (size.heads, -1)).split([size.nope, size.rope], dim=-1)
        latent, k_rope = self.kv_a_proj_with_mqa(x).split([size.latent, size.rope], dim=-1)
        up = self.kv_b_proj(self.kv_a_layernorm(latent)).unflatten(-1, (size.heads, -1))
        k_nope, value = up.split([size.nope, size.value], dim=-1)
        k_rope = rotate(k_rope.unsqueeze(2), now.cos, now.sin).expand(-1, -1, size.heads, -1)
        q = torch.cat((q_nope, rotate(q_rope, now.cos, now.sin)), dim=-1).transpose(1, 2)
        k = torch.cat((k_nope, k_rope), dim=-1).transpose(1, 2)
        q, k = q.to(value.dtype), k.to(value.dtype)
        divergence, mask = x.new_zeros(()), None
        is_sparse, topk = now.mode.kind == "sparse", now.mode.topk or size.index_topk
        if now.sampled is not None or is_sparse:
            index_q, index_k, weights = self.indexer(x, q_latent, now)
            if is_sparse and tokens > topk:
                mask = _selection(index_q, index_k, weights, topk, random_scores=now.mode.random_scores)
            if now.sampled is not None:
                divergence = _indexer_loss(q, k, (index_q, index_k, weights), mask, now)
        # flash attention wants values as wide as keys
        wide = functional.pad(value.transpose(1, 2), (0, size.nope + size.rope - size.value))
        out = functional.scaled_dot_product_attention(
            q, k, wide, attn_mask=mask, is_causal=mask is None, scale=size.attention_scale
        )
        mixed = self.o_proj(out[..., : size.value].transpose(1, 2).reshape(batch, tokens, -1))
        return State(mixed, divergence)


@torch.no_grad()
def _selection(
    q: torch.Tensor, keys: torch.Tensor, weights: torch.Tensor, topk: int, *, random_scores: bool
) -> torch.Tensor:
    """Which tokens each query attends to, [B, 1, T, T] bool: the K = `topk` best of those it sees, or all where they are fewer."""
    batch, tokens = keys.shape[:2]
    chosen = torch.zeros(batch, tokens, tokens, dtype=torch.bool, device=keys.device)
    columns = torch.arange(tokens, device=keys.device)
    for start in range(0, tokens, _ROWS):
        rows = slice(start, min(start + _ROWS, tokens))
        logits = index_logits(q[:, rows], keys, weights[:, rows])
        if random_scores:
            logits = torch.rand_like(logits)
        future = columns > columns[rows, None]
        best = logits.masked_fill(future, -torch.inf).topk(topk, dim=-1).indices
        chosen[:, rows] = chosen[:, rows].scatter(-1, best, value=True) & ~future
    return chosen.unsqueeze(1)


def _indexer_loss(
    q: torch.Tensor,
    k: torch.Tensor,
    index: tuple[torch.Tensor, torch.Tensor, torch.Tensor],
    mask: torch.Tensor | None,
    now: Pass,
) -> torch.Tensor:
    """KL from the attention (mean over heads) to the indexer's softmax, at the sampled queries (equations 3 and 4)."""
    assert now.sampled is not None
    index_q, index_k, weights = index
    heads, tokens, width = q.shape[1:]
    rows = now.sampled
    hidden = torch.arange(tokens, device=q.device) > rows.unsqueeze(-1)
    if mask is not None:
        hidden = hidden | ~mask[:, 0].gather(1, rows.unsqueeze(-1).expand(-1, -1, tokens))
    with torch.no_grad():
        picked = q.gather(2, rows[:, None, :, None].expand(-1, heads, -1, width))
        scores = (picked @ k.transpose(2, 3)).float() * (width**-0.5)
        target = scores.masked_fill(hidden.unsqueeze(1), -torch.inf).softmax(-1).mean(1)
    picked_q = index_q.gather(1, rows[:, :, None, None].expand(-1, -1, *index_q.shape[2:]))
    picked_weights = weights.gather(1, rows.unsqueeze(-1).expand(-1, -1, weights.shape[-1]))
    logits = index_logits(picked_q, index_k, picked_weights).masked_fill(hidden, -1e9)
    log_guess = logits.log_softmax(-1)
    divergence: torch.Tensor = (target * ((target + 1e-9).log() - log_guess)).sum(-1).mean()
    return divergence


class Mlp(nn.Module):
    """SwiGLU."""

    def __init__(self, size: ModelSize) -> None:
        super().__init__()
        self.gate_proj = _linear(size.hidden, size.intermediate)
        self.up_proj = _linear(size.hidden, size.intermediate)
        self.down_proj = _linear(size.intermediate, size.hidden, (2 * size.layers) ** -0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map x [..., hidden] to [..., hidden]."""
        out: torch.Tensor = self.down_proj(functional.silu(self.gate_proj(x)) * self.up_proj(x))
        return out


class Layer(nn.Module):
    """x + attention(norm(x)), then x + mlp(norm(x))."""

    def __init__(self, size: ModelSize) -> None:
        super().__init__()
        self.input_layernorm = Norm(size.hidden, size.norm_eps)
        self.self_attn = Attention(size)
        self.post_attention_layernorm = Norm(size.hidden, size.norm_eps)
        self.mlp = Mlp(size)

    def forward(self, x: torch.Tensor, now: Pass) -> State:
        """Map x [B, T, hidden] to [B, T, hidden]."""
        mixed, divergence = self.self_attn(self.input_layernorm(x), now)
        x = x + mixed
        return State(x + self.mlp(self.post_attention_layernorm(x)), divergence)


class MtpLayer(Layer):
    """The draft head: one more layer behind a projection of a token's embedding and the state in front of it."""

    def __init__(self, size: ModelSize) -> None:
        super().__init__(size)
        self.eh_proj = _linear(2 * size.hidden, size.hidden)

    def draft(self, embedded: torch.Tensor, before: torch.Tensor, now: Pass) -> State:
        """Embedded tokens [B, T, hidden] and the state in front of each [B, T, hidden] → [B, T, hidden]."""
        ones = torch.ones(embedded.shape[-1], device=embedded.device)  # the projection behind it can scale
        normed = [rms_norm(part.float(), ones, self.input_layernorm.eps) for part in (embedded, before)]
        out: State = self(self.eh_proj(torch.cat(normed, dim=-1)), now)
        return out


class Network(nn.Module):
    """The whole model with its draft head."""

    rope: torch.Tensor

    def __init__(self, size: ModelSize) -> None:
        super().__init__()
        self.size = size
        self.embed_tokens = nn.Embedding(VOCABULARY, size.hidden)
        self.layers = nn.ModuleList([*(Layer(size) for _ in range(size.layers)), MtpLayer(size)])
        self.norm = Norm(size.hidden, size.norm_eps)
        self.lm_head = _linear(size.hidden, VOCABULARY)
        self.register_buffer("rope", rope_table(size.context, size.rope, size.rope_theta, "cpu"), persistent=False)

    def start(self, tokens: int, mode: AttentionMode, sampled: torch.Tensor | None = None) -> Pass:
        """Look up what all layers need for sequences of `tokens`."""
        cos, sin = self.rope[:tokens].unsqueeze(2).unbind(1)
        return Pass(cos, sin, mode, sampled)

    def forward(self, tokens: torch.Tensor, now: Pass) -> State:
        """Tokens [B, T] → the state behind the last layer."""
        hidden, divergences = self.embed_tokens(tokens), []
        for layer in self.layers[:-1]:
            hidden, divergence = layer(hidden, now)
            divergences.append(divergence)
        return State(hidden, torch.stack(divergences).mean())

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Hidden states [..., hidden] → [..., vocabulary] float32."""
        found: torch.Tensor = self.lm_head(self.norm(hidden))
        return found.float()

    def draft(self, tokens: torch.Tensor, before: torch.Tensor, now: Pass) -> State:
        """Tokens [B, T] and the hidden state in front of each → the head's state."""
        head = self.layers[-1]
        assert isinstance(head, MtpLayer)
        return head.draft(self.embed_tokens(tokens), before, now)


def in_front(states: torch.Tensor) -> torch.Tensor:
    """The state in front of each token, [B, T, hidden]; zeros in front of the first."""
    return torch.cat((torch.zeros_like(states[:, :1]), states[:, :-1]), dim=1)


def _linear(into: int, out: int, scale: float = 1.0) -> nn.Linear:
    """Weights of standard deviation scale / √into, which keeps the size of activations."""
    made = nn.Linear(into, out, bias=False)
    nn.init.normal_(made.weight, std=scale * into**-0.5)
    return made
