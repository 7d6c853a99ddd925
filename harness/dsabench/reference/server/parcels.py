"""Parcels as bytes: files of torch's, with tensors and plain values only."""

from __future__ import annotations

import io
import pickle
from collections.abc import Sequence
from dataclasses import fields

import torch

from dsabench.reference.engine.kv_cache import KvTransfer, LayerCache


def pack(parcel: KvTransfer) -> bytes:
    """A parcel on its way to a decode server."""
    file = io.BytesIO()
    torch.save({one.name: getattr(parcel, one.name) for one in fields(parcel)}, file)
    return file.getvalue()


def unpack(data: bytes, caches: Sequence[LayerCache], tokens: int, *, drafting: bool) -> KvTransfer:
    """The inverse of `pack`, for a prompt of so many tokens and such caches.

    Raises:
        ValueError: these bytes are no parcel, or one of another model or other KV settings.

    """
    try:
        parcel = KvTransfer(**torch.load(io.BytesIO(data), map_location="cpu", weights_only=True))
        found = [(part.dtype, part.shape) for part in (*parcel.rows, *parcel.keys)]
    except (RuntimeError, EOFError, TypeError, AttributeError, pickle.UnpicklingError) as error:
        raise ValueError(f"no parcel: {error}") from error
    stored = [*(cache.rows for cache in caches), *(cache.keys for cache in caches)]
    wanted = [(part.dtype, torch.Size((tokens, *part.shape[1:]))) for part in stored]
    if found != wanted or drafting != (parcel.hidden is not None):
        raise ValueError("the prefill server has another model or other KV settings")
    return parcel
