"""Conversations of random ids: what a prefix cache lives on, without a tokenizer."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dsabench.load.datasets.protocol import Lengths
from dsabench.load.datasets.random_ids import RandomIds
from dsabench.model.sample import Prompt


@dataclass(frozen=True, slots=True)
class RandomSessions:
    """Each turn's prompt is the one before it, a placeholder for the answer, and a question.

    The model's own answers are not known when the prompts are drawn: the placeholders are as long, so lengths are exact,
    and a server finds the prompt of the turn before in its cache, but not the tokens that it generated itself.
    """

    vocab_size: int
    turns: int

    def draw(self, lengths: Sequence[Lengths], rng: np.random.Generator) -> tuple[Prompt, ...]:
        """One prompt per entry, session after session; an entry is a question's and an answer's length.

        Sessions differ from their first id on, wherever `RandomIds` can tell as many apart.
        """
        firsts = RandomIds(self.vocab_size).draw(lengths[:: self.turns], rng)
        return tuple(
            itertools.chain.from_iterable(
                self._session(first, lengths[place * self.turns : (place + 1) * self.turns], rng)
                for place, first in enumerate(firsts)
            )
        )

    def _session(self, first: Prompt, lengths: Sequence[Lengths], rng: np.random.Generator) -> list[Prompt]:
        prompts = [first]
        for before, length in itertools.pairwise(lengths):
            said = prompts[-1].input_ids or ()
            more = rng.integers(0, self.vocab_size, size=before.output_len + length.input_len).tolist()
            prompts.append(Prompt(len(said) + len(more), length.output_len, input_ids=(*said, *more)))
        return prompts


def turns_of(count: int, turns: int) -> tuple[tuple[int, ...], ...]:
    """Indices of each session's requests."""
    return tuple(tuple(range(start, min(start + turns, count))) for start in range(0, count, turns))
