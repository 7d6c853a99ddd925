"""No tokenizer: prompts are ids, and all that is known is how many ids there are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn

from dsabench.errors import InputError
from dsabench.load.tokenizers.protocol import Message


@dataclass(frozen=True, slots=True)
class IdsOnly:
    """`--tokenize-prompt --vocab-size N`."""

    vocab_size: int
    special_tokens_added: int = 0
    bos_token: None = None

    def ids(self) -> list[int]:
        """0 … vocab_size − 1."""
        return list(range(self.vocab_size))

    def encode(self, text: str) -> NoReturn:
        """Cannot."""
        del text
        raise InputError("this dataset has text, which needs a tokenizer: give --tokenizer instead of --vocab-size")

    count = encode

    def decode(self, ids: Sequence[int]) -> NoReturn:
        """Cannot."""
        del ids
        raise InputError("prompts of text need a tokenizer: give --tokenizer, or --tokenize-prompt to send ids")

    def render_chat(self, messages: Sequence[Message]) -> None:
        """No template."""
        del messages
