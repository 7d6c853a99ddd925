"""One training step of each kind of stage: what is learned, and from which loss."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import nn
from torch.nn import functional

from dsabench.reference.train.network import DENSE, SPARSE, Network, in_front
from dsabench.reference.train.stages import Kind, Stage

_SAMPLED = 128
"""Queries of a row at which the indexer is held against the attention."""
_UNASKED = 0.02
"""How often a query that no answer hangs on is sampled, against one that does."""
_INDEXER = 0.3
"""Weight of the indexer's KL beside the loss of the model or of the head."""
DRAFTS = (1.0, 0.8, 0.6)
"""Weight of the head's first guess, of the second, which it makes from its own state, and of the third."""


class Outcome(NamedTuple):
    """What a step found."""

    loss: torch.Tensor
    right: torch.Tensor
    """Share of the answers' bytes that are the likeliest; of a stage that trains the indexer, its KL."""


def learning(network: Network, kind: Kind) -> list[nn.Parameter]:
    """What learns in a stage; all else is frozen."""
    head = f"layers.{network.size.layers}."
    chosen = []
    for name, parameter in network.named_parameters():
        indexer, draft = ".indexer." in name, name.startswith(head)
        wanted = {
            "dense": not indexer and not draft,
            "indexer": indexer and not draft,
            "sparse": not draft,
            "draft": draft,
        }[kind]
        parameter.requires_grad_(wanted)
        if wanted:
            chosen.append(parameter)
    return chosen


def take(network: Network, stage: Stage, tokens: torch.Tensor, weights: torch.Tensor) -> Outcome:
    """Loss of one batch: tokens and weights [B, T + 1]."""
    seen, targets, weights = tokens[:, :-1], tokens[:, 1:].long(), weights[:, 1:].float()
    if stage.kind == "dense":
        return _cross_entropy(network, network(seen, network.start(stage.length, DENSE)).hidden, targets, weights)
    sampled = torch.multinomial(weights + _UNASKED, min(_SAMPLED, stage.length))
    if stage.kind == "draft":
        return _take_draft(network, seen, targets, weights, sampled)
    now = network.start(stage.length, SPARSE if stage.kind == "sparse" else DENSE, sampled)
    hidden, divergence = network(seen, now)
    if stage.kind == "indexer":
        return Outcome(divergence, divergence.detach())
    outcome = _cross_entropy(network, hidden, targets, weights)
    return outcome._replace(loss=outcome.loss + _INDEXER * divergence)


def _take_draft(
    network: Network, seen: torch.Tensor, targets: torch.Tensor, weights: torch.Tensor, sampled: torch.Tensor
) -> Outcome:
    """The head guesses behind the model's states, then behind its own."""
    length = seen.shape[1]
    with torch.no_grad():
        before = in_front(network(seen, network.start(length, SPARSE)).hidden)
    outcomes, divergences = [], []
    for depth in range(len(DRAFTS)):
        now = network.start(length, SPARSE, sampled if depth == 0 else None)
        state = network.draft(seen, before, now)
        outcomes.append(_cross_entropy(network, state.hidden, targets, weights))
        divergences.append(state.divergence)
        before = in_front(state.hidden)
    loss = sum(share * one.loss for share, one in zip(DRAFTS, outcomes, strict=True)) / sum(DRAFTS)
    return Outcome(loss + _INDEXER * divergences[0], outcomes[0].right)


def _cross_entropy(network: Network, hidden: torch.Tensor, targets: torch.Tensor, weights: torch.Tensor) -> Outcome:
    logits = network.logits(hidden)
    each = functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="none").view_as(weights)
    right = (logits.argmax(-1) == targets)[weights >= 1].float().mean()
    return Outcome((each * weights).sum() / weights.sum(), right.detach())
