"""What one layer remembers of every token: its latent row and its indexer key."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from dsabench.reference.engine.sizes import ModelSize
from dsakernels.kv_layout import PackedLayout, pack, unpack


@dataclass(frozen=True, slots=True)
class LayerCache:
    """Slots of one layer. A slot is one token's place; slots p · page … (p + 1) · page - 1 are page p."""

    layer: int
    rows: torch.Tensor
    """[slots, D] bfloat16, or [slots, row_bytes] uint8 where `packed` is set."""
    keys: torch.Tensor
    """[slots, E] bfloat16: the indexer's keys."""
    packed: PackedLayout | None

    def write(
        self, row_slots: torch.Tensor, slots: torch.Tensor, rows: torch.Tensor, keys: torch.Tensor | None
    ) -> None:
        """Store rows [T, D] in row_slots [T] and keys [T, E] in slots [T]; a layer without an indexer has no keys.

        The two are the same but with HiSparse, which has keys of more tokens than rows.
        """
        stored = rows.to(torch.bfloat16) if self.packed is None else pack(rows, self.packed)
        self.rows.index_copy_(0, row_slots, stored)
        if keys is not None:
            self.keys.index_copy_(0, slots, keys.to(torch.bfloat16))

    def read(self, slots: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        """Plain rows [L, D] of slots [L]; dequantises the whole of them where the cache is packed."""
        stored = self.rows.index_select(0, slots)
        return stored.to(dtype) if self.packed is None else unpack(stored, self.packed, dtype)


@dataclass(frozen=True, slots=True)
class Parcel:
    """What a prefill server hands to a decode server: the first token, and what every layer remembers of the prompt.

    The draft head's layer is the last where there is one.
    """

    first_token: int
    rows: list[torch.Tensor]
    """Per layer [L, row], as cached."""
    keys: list[torch.Tensor]
    """Per layer [L, E]."""
    hidden: torch.Tensor | None
    """[1, hidden] of the prompt's last token, which the draft head starts from; None without one."""

    @property
    def nbytes(self) -> int:
        """Size of the tensors."""
        return sum(part.nbytes for part in (*self.rows, *self.keys))


def allocate(
    size: ModelSize, slots: int, kv_cache_dtype: str, device: str, row_slots: int | None = None
) -> list[LayerCache]:
    """The caches of all layers. Memory is not touched before it is written, so a large pool costs nothing to make."""
    packed = PackedLayout(size.latent, size.rope) if kv_cache_dtype == "fp8_e4m3" else None
    width, dtype = (size.row, torch.bfloat16) if packed is None else (packed.row_bytes, torch.uint8)
    caches = [
        LayerCache(
            layer,
            torch.empty(row_slots or slots, width, dtype=dtype, device=device),
            torch.empty(slots, size.index_dim, dtype=torch.bfloat16, device=device),
            packed,
        )
        for layer in range(size.layers)
    ]
    for cache in caches:
        cache.rows[0].zero_()  # what padding reads, with weight 0: it must be finite
    return caches


def slots_of(pages: Sequence[int], page_size: int, device: torch.device) -> torch.Tensor:
    """Slots of pages, [pages · page_size] int64."""
    starts = torch.tensor(pages, dtype=torch.int64, device=device).unsqueeze(1) * page_size
    return (starts + torch.arange(page_size, device=device)).flatten()
