"""What a prefill server hands to a decode server: the first token, and what every layer remembers of the prompt.

A line of JSON that says the sizes, then the bytes: per layer the rows and the indexer keys of all tokens, the draft
head's layer last where there is one; then the hidden state that the draft head starts from.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

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

    def fits(self, caches: Sequence[LayerCache], tokens: int, *, drafting: bool) -> bool:
        """Whether it can be stored in such caches: both servers need the same model and KV settings."""
        pairs = zip(self.rows, self.keys, caches, strict=False)
        return (
            len(self.rows) == len(caches)
            and drafting == (self.hidden is not None)
            and all(
                len(rows) == tokens and _like(rows, cache.rows) and _like(keys, cache.keys)
                for rows, keys, cache in pairs
            )
        )

    def pack(self) -> bytes:
        """As bytes."""
        parts = [*self.rows, *self.keys, *([] if self.hidden is None else [self.hidden])]
        head = {
            "first_token": self.first_token,
            "layers": len(self.rows),
            "parts": [[str(part.dtype).removeprefix("torch."), list(part.shape)] for part in parts],
        }
        return json.dumps(head).encode() + b"\n" + b"".join(_bytes(part) for part in parts)


def unpack(data: bytes) -> Parcel:
    """The inverse of `Parcel.pack`.

    Raises:
        ValueError: these bytes are none.

    """
    line, _, body = data.partition(b"\n")
    try:
        head = json.loads(line)
        parts = list(_parts(head["parts"], memoryview(bytearray(body))))
        layers = int(head["layers"])
        first = int(head["first_token"])
    except (KeyError, TypeError, AttributeError, RuntimeError) as error:
        raise ValueError(f"no parcel: {error}") from error
    hidden = parts[2 * layers] if len(parts) > 2 * layers else None
    return Parcel(first, tuple(parts[:layers]), tuple(parts[layers : 2 * layers]), hidden)


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


def _like(part: torch.Tensor, cached: torch.Tensor) -> bool:
    return part.dtype == cached.dtype and part.shape[1:] == cached.shape[1:]
