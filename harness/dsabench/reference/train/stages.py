"""The order in which the model learns, as the DeepSeek-V3.2 report has it: dense, indexer alone, sparse, draft head.

What each stage begins with is what the one before has learned. Looking up does not appear in long texts with many facts:
it begins with 4 facts in 64 bytes and goes on to twice the length where it is right.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from dsabench.reference.train.rows import Source

Kind = Literal["dense", "indexer", "sparse", "draft"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """One stage; a step takes `batch` rows of `length` bytes."""

    name: str
    kind: Kind
    length: int
    batch: int
    mix: Mapping[Source, float]
    rate: float
    """Learning rate."""
    steps: int
    """At most."""
    until: float | None = None
    """Share of the answers' bytes that are right, at which it ends early."""
    warm_up: int = 0
    """Steps until the rate is reached."""
    decay: bool = False
    """Lower the rate along a cosine to a twentieth."""


_LEDGER: Mapping[Source, float] = {"ledger": 1}
_SHORT: Mapping[Source, float] = {"short": 6, "prose": 1.5, "ledger": 0.5, "report": 0.7}
_LONG: Mapping[Source, float] = {"short": 3, "prose": 3, "ledger": 1, "report": 0.5}
_TEXT: Mapping[Source, float] = {"short": 3, "prose": 1, "report": 3}

STAGES = (
    Stage(
        name="ledger-64",
        kind="dense",
        length=64,
        batch=1024,
        mix=_LEDGER,
        rate=1e-3,
        steps=4000,
        until=0.985,
        warm_up=300,
    ),
    Stage(name="ledger-128", kind="dense", length=128, batch=512, mix=_LEDGER, rate=1e-3, steps=200, until=0.985),
    Stage(name="ledger-256", kind="dense", length=256, batch=256, mix=_LEDGER, rate=1e-3, steps=200, until=0.985),
    Stage(name="ledger-512", kind="dense", length=512, batch=128, mix=_LEDGER, rate=1e-3, steps=200, until=0.985),
    Stage(name="short-512", kind="dense", length=512, batch=128, mix=_SHORT, rate=1e-3, steps=4000),
    Stage(name="long-1024", kind="dense", length=1024, batch=64, mix=_LONG, rate=1e-3, steps=1300),
    Stage(name="long-2048", kind="dense", length=2048, batch=32, mix=_LONG, rate=7e-4, steps=1200),
    Stage(name="long-8192", kind="dense", length=8192, batch=8, mix=_LONG, rate=5e-4, steps=1000),
    Stage(name="settle-2048", kind="dense", length=2048, batch=32, mix=_SHORT, rate=7e-4, steps=1500, decay=True),
    Stage(name="indexer-2048", kind="indexer", length=2048, batch=32, mix=_LONG, rate=2e-3, steps=600),
    Stage(name="indexer-8192", kind="indexer", length=8192, batch=8, mix=_LONG, rate=1e-3, steps=700, decay=True),
    Stage(name="sparse-8192", kind="sparse", length=8192, batch=8, mix=_LONG, rate=2e-4, steps=120),
    Stage(name="sparse-1024", kind="sparse", length=1024, batch=64, mix=_SHORT, rate=2e-4, steps=700, decay=True),
    Stage(
        name="draft-512", kind="draft", length=512, batch=64, mix=_TEXT, rate=1e-3, steps=900, warm_up=100, decay=True
    ),
)
