"""bench_serving's `random`, `random-ids` and `generated-shared-prefix`
(sglang/benchmark/datasets/random.py and generated_shared_prefix.py).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np

from dsabench.errors import InputError
from dsabench.load.draw.as_bench_serving import DatasetSelection, SeededGenerators, SharedPrefixShape
from dsabench.load.draw.tokenizers import Tokenizer
from dsabench.model.sample import Prompt


def draw_random(selection: DatasetSelection, tokenizer: Tokenizer, generators: SeededGenerators) -> list[Prompt]:
    """Ids from ShareGPT's first turns (`random`) or consecutive ones from a random offset on (`random-ids`).

    bench_serving gives fewer prompts than asked where the file is too short; so does this.
    """
    count = selection.num_prompts
    input_lens = generators.lengths(selection.input_len, selection.range_ratio, count)
    output_lens = generators.lengths(selection.output_len, selection.range_ratio, count)
    if not selection.as_ids:
        input_lens = [max(1, length - tokenizer.special_tokens_added) for length in input_lens]
    if selection.dataset == "random":
        drawn = _from_conversations(selection, tokenizer, generators, input_lens)
    else:
        drawn = _consecutive(tokenizer.vocab_size, generators, input_lens)
    return [
        Prompt(length, output_len, input_ids=tuple(ids))
        if selection.as_ids
        else Prompt(length, output_len, text=tokenizer.decode(ids))
        for ids, length, output_len in zip(drawn, input_lens, output_lens, strict=False)
    ]


def _consecutive(vocab_size: int, generators: SeededGenerators, input_lens: list[int]) -> list[list[int]]:
    """Prompt i has the ids offset + i, offset + i + 1, … modulo the vocabulary."""
    offsets = generators.legacy.randint(0, vocab_size, size=len(input_lens)).tolist()
    steps = np.arange(max(input_lens, default=0))
    return [
        ((offset + i + steps[:length]) % vocab_size).tolist()
        for i, (offset, length) in enumerate(zip(offsets, input_lens, strict=True))
    ]


def _from_conversations(
    selection: DatasetSelection, tokenizer: Tokenizer, generators: SeededGenerators, input_lens: list[int]
) -> list[list[int]]:
    from dsabench.load.draw.recorded import read_sharegpt  # noqa: PLC0415 - not for random ids

    openings = [opening for opening, _ in read_sharegpt(selection)]
    generators.python.shuffle(openings)
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


def draw_shared_prefix(selection: DatasetSelection, tokenizer: Tokenizer, generators: SeededGenerators) -> list[Prompt]:
    """All groups' prompts (groups × prompts_per_group), whatever `num_prompts` says; of each as many turns as there are."""
    shape = selection.shared_prefix
    count = shape.groups * shape.prompts_per_group
    system_lens = generators.lengths(shape.system_prompt_len, shape.range_ratio, shape.groups)
    question_lens = generators.lengths(shape.question_len, shape.range_ratio, count * shape.turns)
    output_lens = generators.lengths(shape.output_len, shape.range_ratio, count)
    vocabulary = tokenizer.ids()

    def random_ids(length: int) -> list[int]:
        return generators.python.choices(vocabulary, k=length)

    owners = _owners(shape, selection.seed)
    prompt = _ids_prompts if selection.as_ids else _text_prompts(tokenizer, fast=shape.fast_prepare)
    systems = [random_ids(length) for length in system_lens]
    questions = [random_ids(length) for length in question_lens]
    rows = [
        (prompt(systems[owner], questions[place], output_len), questions[place + 1 : place + shape.turns])
        for place, owner, output_len in zip(itertools.count(0, shape.turns), owners, output_lens, strict=False)
    ]
    if not shape.ordered:
        generators.python.shuffle(rows)
    if shape.turns == 1:
        return [first for first, _ in rows]
    from dsabench.load.draw.conversations import Turn, as_chat  # noqa: PLC0415 - it imports what reads files

    prompts: list[Prompt] = []
    for number, (first, later) in enumerate(rows):
        said = [(first.text, first.input_len), *((tokenizer.decode(ids), len(ids)) for ids in later)]
        turns = [Turn([{"role": "user", "content": text}], tokens) for text, tokens in said]
        prompts += as_chat(str(number), turns, first.output_len)
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


def _owners(shape: SharedPrefixShape, seed: int) -> list[int]:
    """The group of each prompt. Zipf's draw has a generator of its own, so that the texts stay what they are."""
    if shape.zipf_alpha is None:
        return [place // shape.prompts_per_group for place in range(shape.groups * shape.prompts_per_group)]
    weights = 1.0 / (np.arange(1, shape.groups + 1, dtype=np.float64) ** shape.zipf_alpha)
    rng = np.random.default_rng(seed)
    drawn: list[int] = rng.choice(
        shape.groups, size=shape.groups * shape.prompts_per_group, replace=True, p=weights / weights.sum()
    ).tolist()
    return drawn
