"""`generated-shared-prefix` with one turn (datasets/generated_shared_prefix.py)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from dsabench.load.datasets.exact.dice import Dice
from dsabench.load.datasets.selection import Selection, SharedPrefix
from dsabench.load.tokenizers.protocol import Tokenizer
from dsabench.model.sample import Prompt


def draw_shared_prefix(selection: Selection, tokenizer: Tokenizer, dice: Dice) -> list[Prompt]:
    """All groups' prompts (groups × prompts_per_group), whatever `num_prompts` says."""
    shape = selection.shared_prefix
    count = shape.groups * shape.prompts_per_group
    system_lens = dice.lengths(shape.system_prompt_len, shape.range_ratio, shape.groups)
    question_lens = dice.lengths(shape.question_len, shape.range_ratio, count)
    output_lens = dice.lengths(shape.output_len, shape.range_ratio, count)
    vocabulary = tokenizer.ids()

    def random_ids(length: int) -> list[int]:
        return dice.python.choices(vocabulary, k=length)

    owners = _owners(shape, selection.seed)
    prompt = _ids_prompts if selection.as_ids else _text_prompts(tokenizer, fast=shape.fast_prepare)
    systems = [random_ids(length) for length in system_lens]
    questions = [random_ids(length) for length in question_lens]
    prompts = [
        prompt(systems[owner], question, output_len)
        for owner, question, output_len in zip(owners, questions, output_lens, strict=True)
    ]
    if not shape.ordered:
        dice.python.shuffle(prompts)
    return prompts


MakePrompt = Callable[[list[int], list[int], int], Prompt]


def _ids_prompts(system: list[int], question: list[int], output_len: int) -> Prompt:
    ids = (*system, *question)
    return Prompt(len(ids), output_len, input_ids=ids)


def _text_prompts(tokenizer: Tokenizer, *, fast: bool) -> MakePrompt:
    def make(system: list[int], question: list[int], output_len: int) -> Prompt:
        text = f"{tokenizer.decode(system)}\n\n{tokenizer.decode(question)}"
        return Prompt(1 if fast else len(tokenizer.encode(text)), output_len, text=text)

    return make


def _owners(shape: SharedPrefix, seed: int) -> list[int]:
    """The group of each prompt. Zipf's draw has a generator of its own, so that the texts stay what they are."""
    if shape.zipf_alpha is None:
        return [place // shape.prompts_per_group for place in range(shape.groups * shape.prompts_per_group)]
    weights = 1.0 / (np.arange(1, shape.groups + 1, dtype=np.float64) ** shape.zipf_alpha)
    rng = np.random.default_rng(seed)
    drawn: list[int] = rng.choice(
        shape.groups, size=shape.groups * shape.prompts_per_group, replace=True, p=weights / weights.sum()
    ).tolist()
    return drawn
