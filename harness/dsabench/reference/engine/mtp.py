"""Multi-token prediction: a draft head guesses a chain of tokens, and the model verifies them in one pass.

**The head** is one more layer that guesses the token after next (DeepSeek-V3 report, section 2.2, one MTP module). For token p
it takes the token's embedding and the trunk's final hidden state of the token before, both normed, projects the two to one
vector, runs a DSA layer with a cache of its own, and shares the trunk's embedding and output matrix. Row p of its cache
therefore depends on tokens 0 … p only, as the trunk's rows do, and prefixes can be shared. (SGLang's deepseek_nextn.py stores
the same vector one place earlier.) A head of random weights would agree with a random trunk about never, and speculation would
be all cost. So beside random weights the head is distilled: its layer is the trunk's last one, and its projection is the ridge
regression, on seeded random text, from what it sees to what the trunk feeds its last layer. Speculation is exact whatever these
weights are; they decide only how often a draft is accepted.

**Drafting** is EAGLE with top-k 1. The head remembers a row per token, computed from the trunk's state in front of that token.
It follows the trunk: `follow` gives it prompts, and the first pass of `propose` the tokens that the trunk has chosen since, so
that guesses which were accepted are recomputed from true states. Further passes feed the head its own state and guess.

**Verification**: the model chooses at every place as it would without drafts: the most likely token, or a draw from its
distribution p. A draft is accepted where it is what was chosen; the first choice that differs takes its place and ends the
chain. So every token that goes out was chosen by the model after tokens that went out, and the distribution is p exactly. It is
the rejection rule of Leviathan et al. (2023, algorithm 1) for a proposal that has all its mass on one token: accepted with
probability p(draft), else drawn from p without it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch.nn import functional

from dsabench.reference.engine import kv_cache
from dsabench.reference.engine.batch import ForwardBatch, PrefillBatch, PrefillSpan
from dsabench.reference.engine.counters import EngineCounters
from dsabench.reference.engine.kv_cache import LayerCache
from dsabench.reference.engine.layers import rms_norm
from dsabench.reference.engine.request import AcceptedDrafts, Request
from dsabench.reference.engine.sampler import Sampler, mask_special_tokens
from dsabench.reference.engine.scheduler import EngineStep, Scheduler, TokenRun
from dsabench.reference.engine.transformer import Transformer, TransformerBlock

_TEXT_TOKENS = 2560
_BYTE_VALUES = 256
_RIDGE = 1.0
"""Added to the diagonal of Xᵀ X, whose entries are about the number of tokens."""


@dataclass(frozen=True, slots=True)
class DraftHead:
    """A layer behind a projection; embedding, norms and output matrix are the trunk's."""

    trunk: Transformer
    project: torch.Tensor
    """eh_proj: [hidden, 2 · hidden], from embedding and hidden state."""
    block: TransformerBlock

    def hidden(
        self, batch: ForwardBatch, before: torch.Tensor, cache: LayerCache, counters: EngineCounters
    ) -> torch.Tensor:
        """Run the batch's tokens; `before` [T, hidden] is the hidden state in front of each → [T, hidden]."""
        x = functional.linear(_inputs(self.trunk, batch.tokens, before), self.project)
        return self.block(x, self.trunk.start(batch, counters), cache)


def _inputs(trunk: Transformer, tokens: torch.Tensor, before: torch.Tensor) -> torch.Tensor:
    """What the projection takes: [T] tokens and [T, hidden] hidden states → [T, 2 · hidden]."""
    embedded = functional.embedding(tokens, trunk.embedding)
    eps, ones = trunk.size.norm_eps, torch.ones_like(trunk.norm)
    return torch.cat((rms_norm(embedded, ones, eps), rms_norm(before, ones, eps)), dim=-1)


@torch.inference_mode()
def distil(trunk: Transformer, seed: int) -> DraftHead:
    """Distil a head from the trunk."""
    batch = _text(trunk, seed)
    caches = kv_cache.allocate(trunk.size, len(batch.tokens), "bfloat16", trunk.embedding.device.type)
    last = trunk.blocks[-1]
    target = replace(trunk, blocks=trunk.blocks[:-1]).hidden(batch, caches[:-1], EngineCounters())
    final = last(target, trunk.start(batch, EngineCounters()), caches[-1])
    x = _inputs(trunk, batch.tokens, shifted(final, batch)).float()
    diagonal = _RIDGE * torch.eye(x.shape[1], device=x.device)
    solved = torch.linalg.solve(x.T @ x + diagonal, x.T @ target.float())
    block = replace(last, attention=replace(last.attention, indexed=True))  # nothing selects before it
    return DraftHead(trunk, solved.T.to(trunk.embedding.dtype).contiguous(), block)


def shifted(hidden: torch.Tensor, batch: ForwardBatch) -> torch.Tensor:
    """Hidden states [T, hidden] in front of each token of a prefill; zeros in front of each span's first."""
    assert isinstance(batch.shape, PrefillBatch), "only prefill has spans"
    before = hidden.roll(1, dims=0)
    before[[span.start for span in batch.shape.spans]] = 0.0
    return before


def _text(trunk: Transformer, seed: int) -> ForwardBatch:
    """Random bytes, as one sequence that is no longer than the trunk's rotary table."""
    length, device = min(_TEXT_TOKENS, len(trunk.rope)), trunk.embedding.device
    slots = torch.arange(length, device=device)
    tokens = torch.randint(_BYTE_VALUES, (length,), generator=torch.Generator().manual_seed(seed)).to(device)
    return ForwardBatch(
        tokens, slots, slots, slots, slots, "dense_mha", PrefillBatch((PrefillSpan(0, length, slots, slots),))
    )


class Drafter:
    """The head, its cache, and how far it guesses."""

    def __init__(
        self, head: DraftHead, cache: LayerCache, scheduler: Scheduler, steps: int, counters: EngineCounters
    ) -> None:
        self._head, self._cache, self._scheduler = head, cache, scheduler
        self._steps, self._counters = steps, counters

    def follow(self, step: EngineStep, hidden: torch.Tensor) -> None:
        """Show the head a chunk of prompts; `hidden` [T, hidden] is what the trunk made of it.

        In front of a reused prefix's continuation the state is unknown and taken as 0, which costs agreement only.
        """
        assert isinstance(step.batch.shape, PrefillBatch), "decoded tokens are shown by `propose`"
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
            likeliest = mask_special_tokens(self._head.trunk.logits(hidden)).argmax(-1).tolist()
            for index, token in zip(active, likeliest, strict=True):
                drafts[index].append(token)
            going = [row for row, index in enumerate(active) if wanted[index] > depth]
            if not going:
                break
            active = [active[row] for row in going]
            runs = [TokenRun(requests[i], requests[i].stored_tokens + depth, drafts[i][-1:]) for i in active]
            hidden = self._pass(self._scheduler.decode_batch(runs), hidden[going])
        return drafts

    def _pass(self, batch: ForwardBatch, before: torch.Tensor) -> torch.Tensor:
        self._counters.draft_passes += 1
        return self._head.hidden(batch, before, self._cache, self._counters)


def keep_hidden(step: EngineStep, hidden: torch.Tensor, tokens: Sequence[Sequence[int]]) -> None:
    """Keep the trunk's states in front of the tokens that a verification chose: those of as many of its first rows."""
    parts = torch.split(hidden, [1 + len(guessed) for guessed in step.drafts])
    for request, part, chosen in zip(step.requests, parts, tokens, strict=True):
        request.hidden = part[: len(chosen)]


def _known(request: Request) -> torch.Tensor:
    assert request.hidden is not None, "set by prefill"
    return request.hidden


def _unseen(request: Request) -> TokenRun:
    count = len(_known(request))
    return TokenRun(request, request.stored_tokens + 1 - count, request.output[-count:])


class DraftVerifier:
    """Chooses with the sampler, one place of the chain after the other, so that no random number is drawn in vain."""

    def __init__(self, sampler: Sampler, simulated_length: float | None, counters: EngineCounters) -> None:
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
            accepted = AcceptedDrafts(1, len(guessed), len(tokens) - 1)
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
