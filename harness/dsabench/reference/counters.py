"""What really ran, counted where it ran."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, fields

from dsabench.reference.request import Accepted


@dataclass(slots=True)
class Counters:
    """Totals since the server was ready. Written by the engine's thread only."""

    tokens: Counter[str] = field(default_factory=Counter)
    """`prefill.dense_mha`, `decode.flashmla_kv`, …: new tokens whose attention that path computed."""
    indexed: Counter[str] = field(default_factory=Counter)
    """`prefill`, `decode`: new tokens for which the indexer computed logits (a layer; not needed up to index_topk)."""
    index_layers: Counter[str] = field(default_factory=Counter)
    """`prefill.computed`, `decode.reused`, …: tokens × layers whose selection the indexer computed, or that took the
    one of the layer before (IndexCache)."""
    expert_tokens: Counter[int] = field(default_factory=Counter)
    """Expert → tokens × layers that it computed, the draft head's included."""
    prefill_sizes: Counter[int] = field(default_factory=Counter)
    """New tokens of a prefill step → how many steps had that many."""
    decode_sizes: Counter[int] = field(default_factory=Counter)
    """Requests of a decode step → how many steps had that many."""
    hot_buffer: Counter[str] = field(default_factory=Counter)
    """HiSparse: `hits` and `misses` are selected tokens × layers that were in a buffer or had to be swapped in;
    `bytes_in` and `bytes_out` went from the host store to the device and back; `short_sequence_tokens` needed no lookup."""
    handed_over: Counter[str] = field(default_factory=Counter)
    """Disaggregation: requests, tokens and bytes that left a prefill server or came to a decode server."""
    prompt_tokens: int = 0
    cached_tokens: int = 0
    generated_tokens: int = 0
    draft_passes: int = 0
    """Forward passes of the draft head."""
    speculation: Accepted = field(default_factory=Accepted)
    """Over all requests; a verification of several requests counts once for each."""
    verified_tokens: int = 0
    """Generated tokens that came out of verifications."""
    evicted_pages: int = 0
    requests: int = 0
    aborted: int = 0

    @property
    def accept_length(self) -> float | None:
        """Tokens per verification, the pass's own included; None before the first."""
        passes = self.speculation.verify_passes
        return self.verified_tokens / passes if passes else None

    def snapshot(self) -> dict[str, object]:
        """The same as JSON."""
        return {
            "tokens": dict(sorted(self.tokens.items())),
            "indexed_tokens": dict(sorted(self.indexed.items())),
            "index_layer_tokens": dict(sorted(self.index_layers.items())),
            "expert_tokens": {str(expert): count for expert, count in sorted(self.expert_tokens.items())},
            "hot_buffer": dict(sorted(self.hot_buffer.items())),
            "handed_over": dict(sorted(self.handed_over.items())),
            "prefill_steps": sum(self.prefill_sizes.values()),
            "prefill_step_tokens": {str(size): count for size, count in sorted(self.prefill_sizes.items())},
            "max_prefill_step_tokens": max(self.prefill_sizes, default=None),
            "decode_steps": sum(self.decode_sizes.values()),
            "decode_step_requests": {str(size): count for size, count in sorted(self.decode_sizes.items())},
            "max_decode_step_requests": max(self.decode_sizes, default=None),
            "prompt_tokens": self.prompt_tokens,
            "cached_tokens": self.cached_tokens,
            "generated_tokens": self.generated_tokens,
            "draft_passes": self.draft_passes,
            "verify_passes": self.speculation.verify_passes,
            "proposed_drafts": self.speculation.proposed,
            "correct_drafts": self.speculation.correct,
            "accept_length": self.accept_length,
            "evicted_pages": self.evicted_pages,
            "requests": self.requests,
            "aborted_requests": self.aborted,
        }

    def clear(self) -> None:
        """Start again from nothing."""
        fresh = Counters()
        for one in fields(self):
            setattr(self, one.name, getattr(fresh, one.name))

    def __add__(self, other: Counters) -> Counters:
        """The counts of two engines together."""
        return Counters(**{one.name: getattr(self, one.name) + getattr(other, one.name) for one in fields(self)})
