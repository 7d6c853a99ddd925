"""Engines without HTTP, and a plain model to hold against them."""

from __future__ import annotations

import random

import torch

from dsabench.reference.engine import layers
from dsabench.reference.engine.engine import Engine
from dsabench.reference.engine.layers import MixtureOfExperts
from dsabench.reference.engine.request import Request, SamplingParams
from dsabench.reference.server.arguments import parse
from dsabench.reference.server.resolve_settings import MHA_VARIABLE, resolve
from dsakernels.kv_layout import PackedLayout, pack, unpack


def engine(*flags: str, mha: int | None = None) -> Engine:
    env = {} if mha is None else {MHA_VARIABLE: str(mha)}
    return Engine(resolve(parse(["--model", "tiny", "--cpu-threads", "1", *flags]), env))


def prompt(length: int, seed: int = 0) -> list[int]:
    return random.Random(seed).choices(range(256), k=length)


@torch.inference_mode()
def greedy(engine: Engine, *prompts: list[int], new: int = 1) -> list[tuple[list[int], torch.Tensor]]:
    """Serve prompts together → per prompt its tokens and the logits [new, vocabulary] they were chosen by."""
    sampling = SamplingParams(new, temperature=0.0, ignore_eos=True)
    requests = [Request(str(index), tokens, sampling) for index, tokens in enumerate(prompts)]
    seen: dict[str, list[torch.Tensor]] = {request.id: [] for request in requests}
    for request in requests:
        engine.scheduler.add(request)
    scheduler = engine.scheduler
    while (step := scheduler.next_prefill() or scheduler.next_decode()) is not None:
        hidden = engine.model.hidden(step.batch, engine.caches, engine.counters)
        logits = engine.model.logits(hidden[step.batch.wanted])
        for request, row in zip(step.requests, logits, strict=True):
            seen[request.id].append(row)
        engine.scheduler.commit(step, logits.argmax(-1, keepdim=True).tolist())
    return [(request.output, torch.stack(seen[request.id])) for request in requests]


def plain_logits(engine: Engine, tokens: list[int], visible: list[torch.Tensor] | None = None) -> torch.Tensor:
    """Logits [T, vocabulary] of a sequence, computed from the weights by the textbook, in float32, without a cache.

    Keys and values are expanded per head, whatever path the engine takes. `visible[layer]` [T, T] limits what a token
    sees; None is causal. Rows are rounded as the cache rounds them.
    """
    size, model = engine.settings.size, engine.model
    heads, nope, rope = size.heads, size.nope, size.rope
    cos, sin = (part.unsqueeze(1) for part in model.rope[: len(tokens)].float().unbind(1))
    x = model.embedding[tokens].float()
    for layer, block in enumerate(model.blocks):
        w = block.attention.weights
        h = layers.rms_norm(x, block.attention_norm.float(), size.norm_eps) @ w.down.float().T
        q = layers.rms_norm(h[:, : size.q_lora], w.q_norm.float(), size.norm_eps) @ w.q_up.float().T
        q = q[:, : heads * (nope + rope)].view(-1, heads, nope + rope)
        q = torch.cat((q[..., :nope], layers.rotate(q[..., nope:], cos, sin)), -1)
        latent, k_rope = h[:, size.q_lora :].split([size.latent, rope, size.index_dim + size.index_heads], -1)[:2]
        latent = layers.rms_norm(latent, w.kv_norm.float(), size.norm_eps)
        rows = rounded(engine, torch.cat((latent, layers.rotate(k_rope.unsqueeze(1), cos, sin).squeeze(1)), -1))
        expanded = (rows[:, : size.latent] @ w.kv_up.float().T).view(-1, heads, nope + size.value)
        k = torch.cat((expanded[..., :nope], rows[:, None, size.latent :].expand(-1, heads, -1)), -1)
        scores = torch.einsum("thd,shd->hts", q, k) * size.attention_scale
        mask = torch.ones(len(tokens), len(tokens)).tril().bool() if visible is None else visible[layer]
        weights = scores.masked_fill(~mask, -torch.inf).softmax(-1)
        out = torch.einsum("hts,shv->thv", weights, expanded[..., nope:]).flatten(1)
        x = x + out @ w.out.float().T
        x = x + plain_mlp(block.mlp, layers.rms_norm(x, block.mlp_norm.float(), size.norm_eps))
    return layers.rms_norm(x, model.norm.float(), size.norm_eps) @ model.head.float().T


def plain_mlp(mlp: layers.GatedMlp | MixtureOfExperts, x: torch.Tensor) -> torch.Tensor:
    """A dense MLP, or a mixture token by token: groups, experts and weights by sorting."""
    if isinstance(mlp, layers.GatedMlp):
        gate, up = (x @ mlp.gate_up.float().T).chunk(2, -1)
        return (torch.nn.functional.silu(gate) * up) @ mlp.down.float().T
    widths, rows = mlp.router.widths, []
    size = widths.routed // widths.groups
    for row in x:
        scores = (mlp.router.gate.float() @ row).sigmoid()
        merits = (scores + mlp.router.bias).tolist()
        groups = [range(start, start + size) for start in range(0, widths.routed, size)]
        groups.sort(key=lambda group: -sum(sorted(merits[expert] for expert in group)[-2:]))
        experts = [expert for group in groups[: widths.kept_groups] for expert in group]
        experts = sorted(experts, key=lambda expert: -merits[expert])[: widths.per_token]
        total = sum(float(scores[expert]) for expert in experts)
        out = plain_mlp(mlp.shared, row)
        for expert in experts:
            out = out + widths.scaling * float(scores[expert]) / total * plain_mlp(mlp.routed[expert], row)
        rows.append(out)
    return torch.stack(rows)


def rounded(engine: Engine, rows: torch.Tensor) -> torch.Tensor:
    size = engine.settings.size
    if engine.settings.kv_cache_dtype == "bfloat16":
        return rows.bfloat16().float()
    layout = PackedLayout(size.latent, size.rope)
    return unpack(pack(rows, layout), layout, torch.float32)
