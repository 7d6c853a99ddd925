"""What every dataset offers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np

from dsabench.model.sample import Prompt


class Lengths(NamedTuple):
    """Tokens of one request."""

    input_len: int
    output_len: int


class Dataset(Protocol):
    """A source of prompts."""

    def draw(self, lengths: Sequence[Lengths], rng: np.random.Generator) -> tuple[Prompt, ...]:
        """One prompt per entry, each exactly as long as asked.

        Equal generators give equal prompts. No prompt is drawn twice, so that a prefix cache has nothing to answer
        with but what the data share by nature.

        Raises:
            InputError: the data do not suffice.

        """
