"""How long a server took to prefill one prompt: what a sum of kernel times is held against."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, PositiveFloat, PositiveInt

from dsabench.model.value import Value


class PrefillTime(Value):
    """One prompt of `new_tokens` behind `cached_tokens`, alone on the GPU or as its share of a saturating load."""

    schema_version: Literal[1] = 1
    series: str
    """Figures of one machine, model and client: all but these fields was the same."""
    source: str
    model: Literal["v3.2", "glm5"] = "v3.2"
    heads: PositiveInt = 128
    """Of the rank."""
    layers: PositiveInt
    kv_cache_dtype: Literal["fp8_e4m3"] = "fp8_e4m3"
    prefill_backend: Literal["flashmla_sparse", "flashmla_kv"]
    mha_threshold_tokens: PositiveInt
    """A step in which a sequence reaches no more tokens than this attends densely."""
    chunk_tokens: PositiveInt
    cached_tokens: int = Field(0, ge=0)
    new_tokens: PositiveInt
    ms: PositiveFloat

    @property
    def setting(self) -> tuple[str, int, int]:
        """What was chosen: kernel, threshold, chunk."""
        return self.prefill_backend, self.mha_threshold_tokens, self.chunk_tokens

    @property
    def steps(self) -> tuple[tuple[int, int], ...]:
        """(new, cached) tokens of each chunk, in order."""
        starts = range(0, self.new_tokens, self.chunk_tokens)
        return tuple((min(self.chunk_tokens, self.new_tokens - at), self.cached_tokens + at) for at in starts)
