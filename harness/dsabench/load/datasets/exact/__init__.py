"""Draws exactly what sglang's bench_serving 0.5.23 draws for the same seed and flags (sglang/benchmark/datasets/)."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from dsabench.load.datasets.exact.conversations import draw_conversations
from dsabench.load.datasets.exact.dice import Dice
from dsabench.load.datasets.exact.mooncake import draw_mooncake
from dsabench.load.datasets.exact.openai_requests import draw_openai
from dsabench.load.datasets.exact.random_text import draw_random
from dsabench.load.datasets.exact.shared_prefix import draw_shared_prefix
from dsabench.load.datasets.selection import DatasetName, Selection
from dsabench.load.tokenizers.protocol import Tokenizer
from dsabench.model.sample import Prompt

_DRAWS: Mapping[DatasetName, Callable[[Selection, Tokenizer, Dice], list[Prompt]]] = {
    "random": draw_random,
    "random-ids": draw_random,
    "sharegpt": draw_conversations,
    "custom": draw_conversations,
    "generated-shared-prefix": draw_shared_prefix,
    "mooncake": draw_mooncake,
    "openai": draw_openai,
}


def draw_exact(selection: Selection, tokenizer: Tokenizer, dice: Dice) -> list[Prompt]:
    """The prompts in the order in which they are sent. Afterwards `dice` stands where the arrival gaps are drawn.

    Raises:
        InputError: a file is missing or of another format, or the tokenizer lacks what the dataset needs.

    """
    return _DRAWS[selection.dataset](selection, tokenizer, dice)


__all__ = ["Dice", "draw_exact"]
