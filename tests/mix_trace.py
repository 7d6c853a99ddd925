"""Write the trace of `configs/h200-rank.yaml`: `python tests/mix_trace.py > configs/data/mix-4k.jsonl`.

Prompts and answers of lognormal lengths (medians 3,200 and 160 tokens) in Mooncake's format. Each prompt begins with one of six
system prompts of 512 to 2,048 tokens; the k-th is 1 / k as frequent as the first.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import numpy as np

ROWS = 128
BLOCK_TOKENS = 64
"""SGLang's page with sparse attention, the unit of its prefix cache."""
SYSTEM_TOKENS = (1024, 512, 2048, 512, 1024, 1536)
PROMPT, ANSWER = (3200, 0.7, 16384), (160, 0.6, 768)
"""Median, spread of the logarithm and most, tokens."""


def rows() -> Iterator[dict[str, object]]:
    """The rows, the same each time."""
    rng = np.random.default_rng(46)
    chances = 1.0 / np.arange(1, len(SYSTEM_TOKENS) + 1)
    for place in range(ROWS):
        system = int(rng.choice(len(SYSTEM_TOKENS), p=chances / chances.sum()))
        blocks = SYSTEM_TOKENS[system] // BLOCK_TOKENS
        prompt, answer = (_lognormal(rng, *lengths) for lengths in (PROMPT, ANSWER))
        yield {
            "timestamp": 1000 * place,
            "input_length": max(prompt, SYSTEM_TOKENS[system] + BLOCK_TOKENS),
            "output_length": max(answer, 16),
            "hash_ids": [100 * system + block for block in range(blocks)],
            "block_size": BLOCK_TOKENS,
        }


def _lognormal(rng: np.random.Generator, median: int, spread: float, most: int) -> int:
    return min(most, round(median * float(rng.lognormal(0.0, spread))))


if __name__ == "__main__":
    for row in rows():
        print(json.dumps(row, separators=(",", ":")))
