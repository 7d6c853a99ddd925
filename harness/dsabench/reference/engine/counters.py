"""What really ran, counted where it ran."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, fields

from dsabench.reference.engine.request import AcceptedDrafts


@dataclass(slots=True)
class EngineCounters:
    """Totals since the server was ready. Written by the engine's thread only."""

    tokens: Counter[str] = field(default_factory=Counter)
    """`prefill.dense_mha`, `decode.flashmla_kv`, …: new tokens whose attention that path computed."""
    indexed_tokens: Counter[str] = field(default_factory=Counter)
    """`prefill`, `decode`: new tokens for which the indexer computed logits (a layer; not needed up to index_topk)."""
    index_layer_tokens: Counter[str] = field(default_factory=Counter)
    """`prefill.computed`, `decode.reused`, …: tokens × layers whose selection the indexer computed, or that took the
    one of the layer before (IndexCache)."""
    expert_tokens: Counter[int] = field(default_factory=Counter)
    """Expert → tokens × layers that it computed, the draft head's included."""
    prefill_step_tokens: Counter[int] = field(default_factory=Counter)
    """New tokens of a prefill step → how many steps had that many."""
    decode_step_requests: Counter[int] = field(default_factory=Counter)
    """Requests of a decode step → how many steps had that many."""
    hot_buffer: Counter[str] = field(default_factory=Counter)
    """HiSparse: `hits` and `misses` are selected tokens × layers that were in a buffer or had to be swapped in;
    `bytes_in` and `bytes_out` went from the host store to the device and back; `short_sequence_tokens` needed no lookup."""
    hot_buffer_rows: Counter[int] = field(default_factory=Counter)
    """HiSparse, of every eighth step: rows of the smallest buffer, in whole pages, that would have had a selected token → selected
    tokens × layers; 0: this one had it not."""
    handed_over: Counter[str] = field(default_factory=Counter)
    """Disaggregation: requests, tokens and bytes that left a prefill server or came to a decode server."""
    prompt_tokens: int = 0
    cached_tokens: int = 0
    generated_tokens: int = 0
    draft_passes: int = 0
    """Forward passes of the draft head."""
    speculation: AcceptedDrafts = field(default_factory=AcceptedDrafts)
    """Over all requests; a verification of several requests counts once for each."""
    evicted_pages: int = 0
    requests: int = 0
    aborted_requests: int = 0

    @property
    def accept_length(self) -> float | None:
        """Tokens per verification, the pass's own included; None before the first."""
        accepted = self.speculation
        return 1 + accepted.correct / accepted.verify_passes if accepted.verify_passes else None

    def snapshot(self) -> dict[str, object]:
        """The same as JSON."""
        counts = {one.name: getattr(self, one.name) for one in fields(self) if one.name != "speculation"}
        return {
            **{name: _as_json(count) if isinstance(count, Counter) else count for name, count in counts.items()},
            "prefill_steps": self.prefill_step_tokens.total(),
            "max_prefill_step_tokens": max(self.prefill_step_tokens, default=None),
            "decode_steps": self.decode_step_requests.total(),
            "max_decode_step_requests": max(self.decode_step_requests, default=None),
            "verify_passes": self.speculation.verify_passes,
            "proposed_drafts": self.speculation.proposed,
            "correct_drafts": self.speculation.correct,
            "accept_length": self.accept_length,
        }

    def clear(self) -> None:
        """Start again from nothing."""
        fresh = EngineCounters()
        for one in fields(self):
            setattr(self, one.name, getattr(fresh, one.name))

    def __add__(self, other: EngineCounters) -> EngineCounters:
        """The counts of two engines together."""
        return EngineCounters(**{one.name: getattr(self, one.name) + getattr(other, one.name) for one in fields(self)})


def _as_json(counts: Counter[str] | Counter[int]) -> dict[str, int]:
    return {str(key): count for key, count in sorted(counts.items())}
