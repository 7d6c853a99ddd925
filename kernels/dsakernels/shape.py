"""The shapes that operators are measured at, named by model, heads of a rank, batch, new and cached tokens."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ModelDimensions:
    """What a model's configuration fixes. `heads` is of the whole model; a rank has a part of them."""

    heads: int
    latent: int
    rope: int
    nope: int
    value: int
    index_heads: int
    index_dim: int
    index_topk: int

    @property
    def width(self) -> int:
        """D: values of one cached token."""
        return self.latent + self.rope

    @property
    def packed_bytes(self) -> int:
        """Bytes of one packed fp8 row: `kv_layout.PackedLayout.row_bytes`."""
        return self.latent + 16 + 2 * self.rope


MODELS: dict[str, ModelDimensions] = {
    # config.json of deepseek-ai/DeepSeek-V3.2-Exp
    "v3.2": ModelDimensions(128, 512, 64, 128, 128, 64, 128, 2048),
    # config.json of zai-org/GLM-5
    "glm5": ModelDimensions(64, 512, 64, 192, 256, 32, 128, 2048),
    # no model: small enough for a CPU
    "small": ModelDimensions(8, 128, 32, 32, 32, 4, 32, 64),
    # the sizes of dsabench's reference runtime (reference/sizes.py)
    "reftiny": ModelDimensions(4, 32, 16, 16, 16, 2, 32, 32),
    "refsmall": ModelDimensions(8, 128, 32, 32, 32, 4, 64, 128),
    "reftrained": ModelDimensions(8, 128, 32, 32, 32, 4, 64, 64),
}

_ID = re.compile(r"(?P<model>[a-z0-9.]+)-h(?P<heads>\d+)-b(?P<batch>\d+)-q(?P<q>\d+)-kv(?P<kv>\d+)")


@dataclass(frozen=True, slots=True)
class OperatorShape:
    """`batch` sequences, each with `q_tokens` new tokens at the end of its `kv_tokens`."""

    model: str
    heads: int
    batch: int
    q_tokens: int
    kv_tokens: int

    def __post_init__(self) -> None:
        if self.model not in MODELS:
            raise ValueError(f"no model {self.model}: one of {', '.join(MODELS)}")
        if min(self.heads, self.batch, self.q_tokens) < 1 or self.kv_tokens < self.q_tokens:
            raise ValueError(f"{self.id}: needs 1 or more heads, sequences and new tokens, and no more new than cached")

    @property
    def id(self) -> str:
        """`v3.2-h128-b1-q1024-kv4096`."""
        return f"{self.model}-h{self.heads}-b{self.batch}-q{self.q_tokens}-kv{self.kv_tokens}"

    @property
    def dimensions(self) -> ModelDimensions:
        """Of the model."""
        return MODELS[self.model]

    @property
    def total_q(self) -> int:
        """New tokens of all sequences."""
        return self.batch * self.q_tokens

    @property
    def total_kv(self) -> int:
        """Cached tokens of all sequences, the new ones among them."""
        return self.batch * self.kv_tokens

    @property
    def visible(self) -> int:
        """Σ over the queries of the tokens that each sees."""
        first = self.kv_tokens - self.q_tokens + 1
        return self.batch * (first + self.kv_tokens) * self.q_tokens // 2

    @property
    def selected(self) -> int:
        """Σ over the queries of min(tokens it sees, index_topk)."""
        k, first, last = self.dimensions.index_topk, self.kv_tokens - self.q_tokens + 1, self.kv_tokens
        short = max(0, min(last, k) - first + 1)
        below = (first + first + short - 1) * short // 2
        return self.batch * (below + (self.q_tokens - short) * k)


def parse(text: str) -> OperatorShape:
    """The shape of an id.

    Raises:
        ValueError: it is no id, or names no shape.

    """
    match = _ID.fullmatch(text)
    if match is None:
        raise ValueError(f"{text}: not a shape such as v3.2-h128-b1-q1024-kv4096")
    return OperatorShape(match["model"], *(int(match[part]) for part in ("heads", "batch", "q", "kv")))


_RANKS = (("v3.2", 128), ("v3.2", 16), ("v3.2", 8), ("glm5", 64), ("glm5", 8))
"""Heads of a rank: all of them under DP attention, 16 under TP8, 8 under TP16 (GLM-5: under TP8)."""

_STUDIED = (("v3.2", 128), ("v3.2", 16), ("glm5", 64))
_POOL = 1 << 21

SMALL_PREFILL = tuple(
    OperatorShape("small", 8, batch, q, kv) for batch, q, kv in ((1, 96, 96), (1, 64, 512), (2, 128, 256))
)
SMALL_DECODE = tuple(OperatorShape("small", 8, batch, 1, kv) for batch, kv in ((1, 40), (8, 256), (32, 1024)))
SMALL_VERIFY = tuple(OperatorShape("small", 8, batch, 4, kv) for batch, kv in ((1, 64), (16, 512)))


def prefill() -> tuple[OperatorShape, ...]:
    """Chunks of 1,024 to 16,384 new tokens over prefixes up to 128k, few new tokens, short batches, 64k over 128k."""
    shapes = [
        OperatorShape(model, heads, 1, new, prefix + new)
        for model, heads in _RANKS
        for new in (64, 256, 1024, 2048, 4096, 8192, 16384)
        for prefix in (0, 4096, 16384, 65536, 131072 - new)
        if prefix + new > 64
    ]
    shapes += [OperatorShape(model, heads, 4, 1024, kv) for model, heads in _RANKS for kv in (1024, 8192, 32768)]
    shapes += [OperatorShape(model, heads, 1, 65536, 131072) for model, heads in _RANKS]
    return tuple(dict.fromkeys(shapes))


def study() -> tuple[OperatorShape, ...]:
    """New tokens × cached tokens × batch for the choice between prefill kernels: finer than `prefill`, fewer ranks."""
    single = [
        OperatorShape(model, heads, 1, new, prefix + new)
        for model, heads in _STUDIED
        for new in (16, 64, 128, 256, 512, 1024, 2048, 3072, 4096, 8192, 16384)
        for prefix in (0, 1024, 4096, 8192, 16384, 32768, 65536, 114688)
        if prefix + new > 1024
    ]
    batched = [
        OperatorShape(model, heads, batch, new, prefix + new)
        for model, heads in _STUDIED
        for batch, news in ((4, (16, 256, 1024, 4096)), (16, (4, 64, 256, 1024)))
        for new in news
        for prefix in (0, 4096, 16384, 65536)
        if prefix + new > 1024
    ]
    return (*single, *batched)


def decode() -> tuple[OperatorShape, ...]:
    """1 × 1 to 128 sequences, up to the 2 million tokens that one GPU's pool may hold in a layer."""
    return tuple(
        OperatorShape(model, heads, batch, 1, kv)
        for model, heads in _RANKS
        for batch in (1, 8, 32, 64, 128)
        for kv in (1, 2048, 8192, 32768, 131072)
        if batch * kv <= _POOL
    )


_RANK_TOKENS = 634_944
"""KV tokens in fp8 of a rank of 8 × H200 with all 61 layers of DeepSeek-V3.2 (`configs/h200-rank.yaml`)."""


def rank_decode() -> tuple[OperatorShape, ...]:
    """What a rank under DP attention decodes: 1 to 512 requests of 1,024 to 65,536 tokens, as many as its pool holds."""
    return tuple(
        OperatorShape("v3.2", 128, 1 << power, 1, kv)
        for kv in (1024, 4096, 16384, 65536)
        for power in range(10)
        if kv << power <= _RANK_TOKENS
    )


def rank_prefill() -> tuple[OperatorShape, ...]:
    """Its chunks of 512 to 16,384 tokens, at the beginning of a prompt and behind 4,096 and 16,384 tokens."""
    return tuple(
        OperatorShape("v3.2", 128, 1, new, prefix + new)
        for new in (512, 1024, 2048, 4096, 8192, 16384)
        for prefix in (0, 4096, 16384)
    )


def verify() -> tuple[OperatorShape, ...]:
    """MTP: the last token and its drafts are verified together, 2 or 4 queries a sequence."""
    return tuple(
        OperatorShape(model, heads, batch, q, kv)
        for model, heads in _RANKS
        for batch in (1, 8, 32)
        for q in (2, 4)
        for kv in (2048, 32768, 131072)
        if batch * kv <= _POOL
    )
