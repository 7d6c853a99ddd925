"""Random token ids: no tokenizer, no download, exact lengths."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dsabench.load.datasets.protocol import Lengths
from dsabench.model.sample import Prompt


@dataclass(frozen=True, slots=True)
class RandomIds:
    """Ids uniform on the vocabulary. Each prompt has a head of its own.

    bench_serving counts ids upwards from a random offset, so two prompts may be one text shifted; independent ids with
    distinct heads leave a prefix cache nothing to reuse, whatever its page size.
    """

    vocab_size: int

    def draw(self, lengths: Sequence[Lengths], rng: np.random.Generator) -> tuple[Prompt, ...]:
        """The first `_head_len` ids of all prompts are pairwise different, where the shortest prompt has that many."""
        head_len = self._head_len(len(lengths))
        if min((length.input_len for length in lengths), default=0) >= head_len:
            codes = rng.choice(self.vocab_size**head_len, size=len(lengths), replace=False).tolist()
        else:  # too short to tell apart, e.g. 1,000 prompts of one byte
            codes = [None] * len(lengths)
        return tuple(self._prompt(length, code, head_len, rng) for length, code in zip(lengths, codes, strict=True))

    def _head_len(self, count: int) -> int:
        """Fewest ids that can number `count` prompts: 1 wherever the vocabulary is larger than the workload."""
        head_len = 1
        while self.vocab_size**head_len < count and self.vocab_size > 1:
            head_len += 1
        return head_len

    def _prompt(self, length: Lengths, code: int | None, head_len: int, rng: np.random.Generator) -> Prompt:
        ids = rng.integers(0, self.vocab_size, size=length.input_len).tolist()
        if code is not None:
            for place in range(head_len):
                code, ids[place] = divmod(code, self.vocab_size)
        return Prompt(length.input_len, length.output_len, input_ids=tuple(ids))
