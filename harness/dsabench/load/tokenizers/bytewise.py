"""The reference runtime's tokenizer: one token per UTF-8 byte."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dsabench.load.tokenizers.protocol import Message


@dataclass(frozen=True, slots=True)
class Bytewise:
    """Ids 0 to 255 are bytes. The runtime's three special tokens have no text and are never drawn."""

    vocab_size: int = 256
    special_tokens_added: int = 0
    bos_token: None = None

    def ids(self) -> list[int]:
        """0 … 255."""
        return list(range(self.vocab_size))

    def encode(self, text: str) -> list[int]:
        """UTF-8; a lone surrogate becomes a question mark."""
        return list(text.encode("utf-8", "replace"))

    def count(self, text: str) -> int:
        """UTF-8 bytes."""
        return len(text.encode("utf-8", "replace"))

    def decode(self, ids: Sequence[int]) -> str:
        """What is no UTF-8 becomes U+FFFD, which is three bytes again."""
        return bytes(ids).decode("utf-8", "replace")

    def render_chat(self, messages: Sequence[Message]) -> None:
        """No template of its own, so that mooncake's draw is that of a tokenizer without one."""
        del messages

    def runtime_chat(self, messages: Sequence[Message]) -> str:
        """As the reference runtime puts messages together (reference/openai_messages.py, chat_prompt)."""
        return "".join(f"<|{message.get('role')}|>{_text(message)}\n" for message in messages) + "<|assistant|>"


def _text(message: Message) -> str:
    """The content; of parts their texts together."""
    content = message.get("content")
    if isinstance(content, list):
        return "".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    return "" if content is None else str(content)
