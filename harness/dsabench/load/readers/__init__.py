"""What a server streamed back → what is measured of it: one exact reader per endpoint, over the reads of one request.

`stream` turns bytes into JSON frames, the endpoint's module makes a `Reply` of them. A faster recogniser may take the
common case of an endpoint as long as it gives the same `Reply`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from dsabench.http import Read
from dsabench.load.readers.chat import read_chat
from dsabench.load.readers.completions import read_completions
from dsabench.load.readers.generate import read_generate
from dsabench.load.readers.reply import Piece, Reply, Spoken
from dsabench.load.target import EndpointName


class Reader(Protocol):
    """Reads one recorded stream."""

    def __call__(self, reads: Iterable[Read], start_s: float, *, keep_text: bool = False) -> Reply:
        """Frames with times relative to `start_s`; `keep_text` fills `Reply.spoken`. Never raises."""


READERS: Mapping[EndpointName, Reader] = {
    "generate": read_generate,
    "completions": read_completions,
    "chat": read_chat,
}
"""Endpoint → its reader."""

__all__ = [
    "READERS",
    "Piece",
    "Reader",
    "Reply",
    "Spoken",
    "read_chat",
    "read_completions",
    "read_generate",
]
