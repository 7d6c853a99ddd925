"""Choosing the next token of each row."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from dsabench.reference.engine.request import BOS, PAD, Request
from dsabench.reference.engine.sizes import VOCABULARY


def mask_special_tokens(logits: torch.Tensor) -> torch.Tensor:
    """Make the tokens impossible that nobody may generate; in place."""
    logits[:, BOS] = logits[:, PAD] = -torch.inf
    return logits


class Sampler:
    """Greedy, or by temperature, top-k and top-p. Requests without a seed share one stream of random numbers."""

    def __init__(self, seed: int, device: str) -> None:
        self._device = device
        self._shared = self._generator(seed)

    def choose(self, logits: torch.Tensor, requests: Sequence[Request]) -> list[int]:
        """One token per row of logits [B, vocabulary] float32, which it overwrites."""
        greedy: list[int] = mask_special_tokens(logits).argmax(-1).tolist()
        drawn = [row for row, request in enumerate(requests) if request.sampling.temperature > 0]
        if drawn:
            tokens = self._draw(logits[drawn], [requests[row] for row in drawn])
            for row, token in zip(drawn, tokens, strict=True):
                greedy[row] = token
        return greedy

    def skip(self, request: Request) -> None:
        """Draw the random numbers of a token that another server has chosen, so that a seed goes on as on one server."""
        if request.sampling.temperature > 0 and request.sampling.seed is not None:
            self._race(request, VOCABULARY)

    def _draw(self, logits: torch.Tensor, requests: Sequence[Request]) -> list[int]:
        """Sort each row, cut by rank and by mass, then take the largest p / exponential, which is a draw from p."""
        columns = {
            name: torch.tensor([[getattr(r.sampling, name)] for r in requests], device=logits.device)
            for name in ("temperature", "top_k", "top_p")
        }
        probabilities, ids = (logits / columns["temperature"]).softmax(-1).sort(-1, descending=True)
        ranks = torch.arange(probabilities.shape[1], device=logits.device)
        limit = torch.where(columns["top_k"] > 0, columns["top_k"], probabilities.shape[1])
        mass_before = probabilities.cumsum(-1) - probabilities
        kept = (ranks < limit) & (mass_before < columns["top_p"])
        kept[:, 0] = True
        races = torch.stack([self._race(request, probabilities.shape[1]) for request in requests])
        winner = probabilities.masked_fill(~kept, 0.0).div(races).argmax(-1, keepdim=True)
        chosen: list[int] = ids.gather(1, winner).squeeze(1).tolist()
        return chosen

    def _race(self, request: Request, width: int) -> torch.Tensor:
        generator = self._shared
        if request.sampling.seed is not None:
            if request.generator is None:
                request.generator = self._generator(request.sampling.seed)
            generator = request.generator
        return torch.empty(width, device=self._device).exponential_(generator=generator)

    def _generator(self, seed: int) -> torch.Generator:
        return torch.Generator(device=self._device).manual_seed(seed)
