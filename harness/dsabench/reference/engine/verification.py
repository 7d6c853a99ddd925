"""Acceptance: which drafts the model would have chosen itself.

The model chooses at every place as it would without drafts: the most likely token, or a draw from its distribution p.
A draft is accepted where it is what was chosen; the first choice that differs takes its place and ends the chain. So
every token that goes out was chosen by the model after tokens that went out, and the distribution is p exactly. It is
the rejection rule of Leviathan et al. (2023, algorithm 1) for a proposal that has all its mass on one token: accepted
with probability p(draft), else drawn from p without it.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from dsabench.reference.engine.counters import Counters
from dsabench.reference.engine.request import Accepted, Request
from dsabench.reference.engine.sampler import Sampler


class Verifier:
    """Chooses with the sampler, one place of the chain after the other, so that no random number is drawn in vain."""

    def __init__(self, sampler: Sampler, simulated_length: float | None, counters: Counters) -> None:
        self._sampler, self._simulated_length, self._counters = sampler, simulated_length, counters
        self._chance = torch.Generator().manual_seed(0)

    def choose(
        self, logits: torch.Tensor, requests: Sequence[Request], drafts: Sequence[Sequence[int]]
    ) -> list[list[int]]:
        """Tokens of each request: its accepted drafts and one more.

        Logits [Σ (1 + drafts), vocabulary] float32, request after request: behind its last token, then each draft.
        """
        places = torch.split(logits, [1 + len(guessed) for guessed in drafts])
        choose = self._exact if self._simulated_length is None else self._simulated
        chosen = choose(places, requests, drafts)
        for request, guessed, tokens in zip(requests, drafts, chosen, strict=True):
            accepted = Accepted(1, len(guessed), len(tokens) - 1)
            request.accepted += accepted
            self._counters.speculation += accepted
        return chosen

    def _exact(
        self, places: Sequence[torch.Tensor], requests: Sequence[Request], drafts: Sequence[Sequence[int]]
    ) -> list[list[int]]:
        chosen: list[list[int]] = [[] for _ in requests]
        going, depth = list(range(len(requests))), 0
        while going:
            rows = torch.stack([places[index][depth] for index in going])
            tokens = self._sampler.choose(rows, [requests[index] for index in going])
            for index, token in zip(going, tokens, strict=True):
                chosen[index].append(token)
            going = [index for index in going if list(drafts[index][depth : depth + 1]) == chosen[index][-1:]]
            depth += 1
        return chosen

    def _simulated(
        self, places: Sequence[torch.Tensor], requests: Sequence[Request], drafts: Sequence[Sequence[int]]
    ) -> list[list[int]]:
        """Accept the integer below or above the mean, by chance (sglang 0.5.23 spec_utils.py:488, match-expected)."""
        mean = max(1.0, self._simulated_length or 0.0)
        whole = int(mean)
        extra = float(torch.rand((), generator=self._chance)) < mean - whole
        counts = [min(whole + extra, 1 + len(guessed)) for guessed in drafts]
        rows = torch.stack([part[count - 1] for part, count in zip(places, counts, strict=True)])
        last = self._sampler.choose(rows, requests)
        parts = zip(drafts, counts, last, strict=True)
        return [[*guessed[: count - 1], token] for guessed, count, token in parts]
