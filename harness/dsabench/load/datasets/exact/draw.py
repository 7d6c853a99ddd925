"""Which draw a dataset has. Each is imported when it is used: the start of a load generator counts in its cost."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module

from dsabench.load.datasets.exact.dice import Dice
from dsabench.load.datasets.selection import DatasetName, Selection
from dsabench.load.tokenizers.protocol import Tokenizer
from dsabench.model.sample import Prompt

Draw = Callable[[Selection, Tokenizer, Dice], list[Prompt]]
_DRAWS: Mapping[DatasetName, tuple[str, str]] = {
    "random": ("random_text", "draw_random"),
    "random-ids": ("random_text", "draw_random"),
    "sharegpt": ("conversations", "draw_conversations"),
    "custom": ("conversations", "draw_conversations"),
    "generated-shared-prefix": ("shared_prefix", "draw_shared_prefix"),
    "mooncake": ("mooncake", "draw_mooncake"),
    "openai": ("openai_requests", "draw_openai"),
}
"""Dataset → module beside this one, and its function."""


def draw_exact(selection: Selection, tokenizer: Tokenizer, dice: Dice) -> list[Prompt]:
    """The prompts in the order in which they are sent. Afterwards `dice` stands where the arrival gaps are drawn.

    Raises:
        InputError: a file is missing or of another format, or the tokenizer lacks what the dataset needs.

    """
    module, name = _DRAWS[selection.dataset]
    draw: Draw = getattr(import_module(f"dsabench.load.datasets.exact.{module}"), name)
    return draw(selection, tokenizer, dice)
