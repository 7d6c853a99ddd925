"""What every tokenizer offers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

Message = Mapping[str, object]
"""A chat message as OpenAI's API has it: role, content."""


class Tokenizer(Protocol):
    """Text to ids and back, with the counts that bench_serving's draws rest on."""

    @property
    def vocab_size(self) -> int:
        """Ids without those added later (transformers' `vocab_size`)."""

    @property
    def special_tokens_added(self) -> int:
        """How many `encode` puts around a text by itself."""

    @property
    def bos_token(self) -> str | None:
        """Text of the token that begins a sequence."""

    def ids(self) -> list[int]:
        """Every id of the vocabulary, added ones included, ascending."""

    def encode(self, text: str) -> list[int]:
        """Ids, with the special tokens that the tokenizer adds."""

    def count(self, text: str) -> int:
        """Tokens of a text, without added special ones."""

    def decode(self, ids: Sequence[int]) -> str:
        """Text; special tokens are kept."""

    def render_chat(self, messages: Sequence[Message]) -> str | None:
        """The prompt of a conversation, ready for an answer; None where the tokenizer has no chat template."""
