"""`random` and `random-ids` (datasets/random.py)."""

from __future__ import annotations

import numpy as np

from dsabench.errors import InputError
from dsabench.load.datasets.exact.dice import Dice
from dsabench.load.datasets.selection import Selection
from dsabench.load.tokenizers.protocol import Tokenizer
from dsabench.model.sample import Prompt


def draw_random(selection: Selection, tokenizer: Tokenizer, dice: Dice) -> list[Prompt]:
    """Ids from ShareGPT's first turns (`random`) or consecutive ones from a random offset on (`random-ids`).

    bench_serving gives fewer prompts than asked where the file is too short; so does this.
    """
    count = selection.num_prompts
    input_lens = dice.lengths(selection.input_len, selection.range_ratio, count)
    output_lens = dice.lengths(selection.output_len, selection.range_ratio, count)
    if not selection.as_ids:
        input_lens = [max(1, length - tokenizer.special_tokens_added) for length in input_lens]
    if selection.dataset == "random":
        drawn = _from_conversations(selection, tokenizer, dice, input_lens)
    else:
        drawn = _consecutive(tokenizer.vocab_size, dice, input_lens)
    return [
        Prompt(length, output_len, input_ids=tuple(ids))
        if selection.as_ids
        else Prompt(length, output_len, text=tokenizer.decode(ids))
        for ids, length, output_len in zip(drawn, input_lens, output_lens, strict=False)
    ]


def _consecutive(vocab_size: int, dice: Dice, input_lens: list[int]) -> list[list[int]]:
    """Prompt i has the ids offset + i, offset + i + 1, … modulo the vocabulary."""
    offsets = dice.legacy.randint(0, vocab_size, size=len(input_lens)).tolist()
    steps = np.arange(max(input_lens, default=0))
    return [
        ((offset + i + steps[:length]) % vocab_size).tolist()
        for i, (offset, length) in enumerate(zip(offsets, input_lens, strict=True))
    ]


def _from_conversations(
    selection: Selection, tokenizer: Tokenizer, dice: Dice, input_lens: list[int]
) -> list[list[int]]:
    from dsabench.load.datasets.exact.conversations import read_sharegpt  # noqa: PLC0415 - not for random ids

    openings = [opening for opening, _ in read_sharegpt(selection)]
    dice.python.shuffle(openings)
    drawn: list[list[int]] = []
    for opening in openings:
        if len(drawn) == len(input_lens):
            break
        if ids := tokenizer.encode(opening):
            length = input_lens[len(drawn)]
            drawn.append((ids * -(-length // len(ids)))[:length])
    if not drawn:
        raise InputError(f"{selection.path}: no conversation with two turns, the first of them not empty")
    return drawn
