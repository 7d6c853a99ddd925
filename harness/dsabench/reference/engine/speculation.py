"""Drafting: the draft head guesses a chain of tokens behind each running request (EAGLE with top-k 1).

The head remembers a row per token, computed from the trunk's state in front of that token. It follows the trunk:
`follow` gives it prompts, and the first pass of `propose` the tokens that the trunk has chosen since, so that guesses
which were accepted are recomputed from true states. Further passes feed the head its own state and guess.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from dsabench.reference.engine.batch import Batch, Prefill
from dsabench.reference.engine.counters import Counters
from dsabench.reference.engine.draft_head import DraftHead, shifted
from dsabench.reference.engine.latent_cache import LayerCache
from dsabench.reference.engine.request import Request
from dsabench.reference.engine.sampler import never
from dsabench.reference.engine.scheduler import Run, Scheduler, Step


class Drafter:
    """The head, its cache, and how far it guesses."""

    def __init__(
        self, head: DraftHead, cache: LayerCache, scheduler: Scheduler, steps: int, counters: Counters
    ) -> None:
        self._head, self._cache, self._scheduler = head, cache, scheduler
        self._steps, self._counters = steps, counters

    def follow(self, step: Step, hidden: torch.Tensor) -> None:
        """Show the head a chunk of prompts; `hidden` [T, hidden] is what the trunk made of it.

        In front of a reused prefix's continuation the state is unknown and taken as 0, which costs agreement only.
        """
        assert isinstance(step.batch.shape, Prefill), "decoded tokens are shown by `propose`"
        before = shifted(hidden, step.batch)
        for request, span in zip(step.members, step.batch.shape.spans, strict=True):
            if request.hidden is not None:  # of the chunk before
                before[span.start] = request.hidden[-1]
            request.hidden = hidden[span.stop - 1 : span.stop].clone()
        self._pass(step.batch, before)

    def propose(self, requests: Sequence[Request]) -> list[list[int]]:
        """Guess up to `steps` tokens for each request, but none that its max_new_tokens would cut off."""
        drafts: list[list[int]] = [[] for _ in requests]
        wanted = [min(self._steps, r.sampling.max_new_tokens - len(r.output) - 1) for r in requests]
        active = [index for index, count in enumerate(wanted) if count > 0]
        if not active:
            return drafts
        runs = [_unseen(requests[index]) for index in active]
        ends = torch.tensor([len(run.tokens) for run in runs]).cumsum(0) - 1
        before = torch.cat([_known(requests[index]) for index in active])
        hidden = self._pass(self._scheduler.decode_batch(runs), before)[ends.to(before.device)]
        for depth in range(1, self._steps + 1):
            likeliest = never(self._head.trunk.logits(hidden)).argmax(-1).tolist()
            for index, token in zip(active, likeliest, strict=True):
                drafts[index].append(token)
            going = [row for row, index in enumerate(active) if wanted[index] > depth]
            if not going:
                break
            active = [active[row] for row in going]
            runs = [Run(requests[i], requests[i].stored_tokens + depth, drafts[i][-1:]) for i in active]
            hidden = self._pass(self._scheduler.decode_batch(runs), hidden[going])
        return drafts

    def _pass(self, batch: Batch, before: torch.Tensor) -> torch.Tensor:
        self._counters.draft_passes += 1
        return self._head.hidden(batch, before, self._cache, self._counters)


def keep_hidden(step: Step, hidden: torch.Tensor, tokens: Sequence[Sequence[int]]) -> None:
    """Keep the trunk's states in front of the tokens that a verification chose: those of as many of its first rows."""
    parts = torch.split(hidden, [1 + len(guessed) for guessed in step.drafts])
    for request, part, chosen in zip(step.requests, parts, tokens, strict=True):
        request.hidden = part[: len(chosen)]


def _known(request: Request) -> torch.Tensor:
    assert request.hidden is not None, "set by prefill"
    return request.hidden


def _unseen(request: Request) -> Run:
    count = len(_known(request))
    return Run(request, request.stored_tokens + 1 - count, request.output[-count:])
