"""The byte-level tokenizer: token 0 … 255 is that byte of UTF-8, then three special tokens."""

from __future__ import annotations

import codecs

BOS = 256
EOS = 257
PAD = 258


def encode(text: str) -> list[int]:
    """One token per UTF-8 byte. No token marks the beginning, so that text and its bytes sent as ids are one prompt."""
    return list(text.encode())


class IncrementalDecoder:
    """Turns generated tokens into text as they come.

    The bytes of a character that is not complete yet are held back; bytes that can never become a character turn into
    U+FFFD. Special tokens have no text.
    """

    __slots__ = ("_codec", "text")

    def __init__(self) -> None:
        self._codec = codecs.getincrementaldecoder("utf-8")("replace")
        self.text = ""

    def feed(self, token: int) -> None:
        """Take one token."""
        if token < BOS:
            self.text += self._codec.decode(bytes((token,)))

    def finish(self) -> None:
        """Nothing follows: what was held back becomes U+FFFD."""
        self.text += self._codec.decode(b"", final=True)
