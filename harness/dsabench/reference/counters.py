"""What really ran, counted where it ran."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, fields


@dataclass(slots=True)
class Counters:
    """Totals since the server was ready. Written by the engine's thread only."""

    tokens: Counter[str] = field(default_factory=Counter)
    """`prefill.dense_mha`, `decode.flashmla_kv`, …: new tokens whose attention that path computed."""
    indexed: Counter[str] = field(default_factory=Counter)
    """`prefill`, `decode`: new tokens for which the indexer computed logits (a layer; not needed up to index_topk)."""
    prefill_sizes: Counter[int] = field(default_factory=Counter)
    """New tokens of a prefill step → how many steps had that many."""
    decode_sizes: Counter[int] = field(default_factory=Counter)
    """Requests of a decode step → how many steps had that many."""
    prompt_tokens: int = 0
    cached_tokens: int = 0
    generated_tokens: int = 0
    evicted_pages: int = 0
    requests: int = 0
    aborted: int = 0

    def snapshot(self) -> dict[str, object]:
        """The same as JSON."""
        return {
            "tokens": dict(sorted(self.tokens.items())),
            "indexed_tokens": dict(sorted(self.indexed.items())),
            "prefill_steps": sum(self.prefill_sizes.values()),
            "prefill_step_tokens": {str(size): count for size, count in sorted(self.prefill_sizes.items())},
            "max_prefill_step_tokens": max(self.prefill_sizes, default=None),
            "decode_steps": sum(self.decode_sizes.values()),
            "decode_step_requests": {str(size): count for size, count in sorted(self.decode_sizes.items())},
            "max_decode_step_requests": max(self.decode_sizes, default=None),
            "prompt_tokens": self.prompt_tokens,
            "cached_tokens": self.cached_tokens,
            "generated_tokens": self.generated_tokens,
            "evicted_pages": self.evicted_pages,
            "requests": self.requests,
            "aborted_requests": self.aborted,
        }

    def clear(self) -> None:
        """Start again from nothing."""
        fresh = Counters()
        for one in fields(self):
            setattr(self, one.name, getattr(fresh, one.name))
