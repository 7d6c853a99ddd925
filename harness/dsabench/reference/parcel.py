"""What a prefill server hands to a decode server: the first token, and what every layer remembers of the prompt.

A line of JSON that says the sizes, then the bytes: per layer the rows and the indexer keys of all tokens, the draft
head's layer last where there is one; then the hidden state that the draft head starts from.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import torch

from dsabench.reference.latent_cache import LayerCache


@dataclass(frozen=True, slots=True)
class Parcel:
    """A prompt that is prefilled."""

    first_token: int
    rows: tuple[torch.Tensor, ...]
    """Per layer [L, row], as cached."""
    keys: tuple[torch.Tensor, ...]
    """Per layer [L, E]."""
    hidden: torch.Tensor | None
    """[1, hidden] of the prompt's last token; None without a draft head."""

    def pack(self) -> bytes:
        """As bytes."""
        parts = [*self.rows, *self.keys, *([] if self.hidden is None else [self.hidden])]
        head = {
            "first_token": self.first_token,
            "layers": len(self.rows),
            "parts": [[str(part.dtype).removeprefix("torch."), list(part.shape)] for part in parts],
        }
        return json.dumps(head).encode() + b"\n" + b"".join(_bytes(part) for part in parts)


def unpack(data: bytes, caches: Sequence[LayerCache], tokens: int, *, drafting: bool) -> Parcel:
    """The inverse of `Parcel.pack`, for a prompt of so many tokens and such caches.

    Raises:
        ValueError: these bytes are no parcel, or one of another model or other KV settings.

    """
    line, _, body = data.partition(b"\n")
    try:
        head = json.loads(line)
        parts = list(_parts(head["parts"], memoryview(bytearray(body))))
        layers, first = int(head["layers"]), int(head["first_token"])
    except (KeyError, TypeError, AttributeError, RuntimeError) as error:
        raise ValueError(f"no parcel: {error}") from error
    rows, keys = parts[:layers], parts[layers : 2 * layers]
    stored = [*(cache.rows for cache in caches), *(cache.keys for cache in caches)]
    alike = len(stored) == len(rows + keys) and all(map(partial(_like, tokens), rows + keys, stored))
    if not alike or drafting != (len(parts) > 2 * layers):
        raise ValueError("the prefill server has another model or other KV settings")
    return Parcel(first, tuple(rows), tuple(keys), parts[-1] if drafting else None)


def _parts(shapes: Sequence[tuple[str, list[int]]], body: memoryview) -> Iterator[torch.Tensor]:
    start = 0
    for name, shape in shapes:
        dtype = getattr(torch, name)
        stop = start + dtype.itemsize * torch.Size(shape).numel()
        yield torch.frombuffer(body[start:stop], dtype=dtype).view(shape)
        start = stop


def _bytes(part: torch.Tensor) -> bytes:
    data: bytes = part.contiguous().cpu().view(torch.uint8).numpy().tobytes()
    return data


def _like(tokens: int, part: torch.Tensor, cached: torch.Tensor) -> bool:
    return part.dtype == cached.dtype and part.shape == (tokens, *cached.shape[1:])
