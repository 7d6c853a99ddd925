"""What a prefill server hands to a decode server: the first token, and what every layer remembers of the prompt."""

from __future__ import annotations

import io
import pickle
from collections.abc import Sequence
from dataclasses import dataclass, fields

import torch

from dsabench.reference.latent_cache import LayerCache


@dataclass(frozen=True, slots=True)
class Parcel:
    """A prompt that is prefilled; the draft head's layer is the last where there is one."""

    first_token: int
    rows: list[torch.Tensor]
    """Per layer [L, row], as cached."""
    keys: list[torch.Tensor]
    """Per layer [L, E]."""
    hidden: torch.Tensor | None
    """[1, hidden] of the prompt's last token, which the draft head starts from; None without one."""

    def pack(self) -> bytes:
        """As bytes: a file of torch's, with tensors and plain values only."""
        file = io.BytesIO()
        torch.save({one.name: getattr(self, one.name) for one in fields(self)}, file)
        return file.getvalue()


def unpack(data: bytes, caches: Sequence[LayerCache], tokens: int, *, drafting: bool) -> Parcel:
    """The inverse of `Parcel.pack`, for a prompt of so many tokens and such caches.

    Raises:
        ValueError: these bytes are no parcel, or one of another model or other KV settings.

    """
    try:
        parcel = Parcel(**torch.load(io.BytesIO(data), map_location="cpu", weights_only=True))
        found = [(part.dtype, part.shape) for part in (*parcel.rows, *parcel.keys)]
    except (RuntimeError, EOFError, TypeError, AttributeError, pickle.UnpicklingError) as error:
        raise ValueError(f"no parcel: {error}") from error
    stored = [*(cache.rows for cache in caches), *(cache.keys for cache in caches)]
    wanted = [(part.dtype, torch.Size((tokens, *part.shape[1:]))) for part in stored]
    if found != wanted or drafting != (parcel.hidden is not None):
        raise ValueError("the prefill server has another model or other KV settings")
    return parcel
