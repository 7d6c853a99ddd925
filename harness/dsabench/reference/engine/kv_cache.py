"""What is remembered of a token, its latent row and indexer key, and in which pages, so that prefixes are shared.

A full page is known by its tokens and the page in front of it, which is known likewise: the known pages are a tree of
prefixes (SGLang, 2023, section 3, with a page for an edge).
"""

from __future__ import annotations

import io
import pickle
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields

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
class KvTransfer:
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

    def to_bytes(self) -> bytes:
        """A file of torch's, with tensors and plain values only, on its way to a decode server."""
        file = io.BytesIO()
        torch.save({one.name: getattr(self, one.name) for one in fields(self)}, file)
        return file.getvalue()

    @classmethod
    def from_bytes(cls, data: bytes, caches: Sequence[LayerCache], tokens: int, *, drafting: bool) -> KvTransfer:
        """The inverse of `to_bytes`, for a prompt of so many tokens and such caches.

        Raises:
            ValueError: these bytes are no such file, or one of another model or other KV settings.

        """
        try:
            sent = cls(**torch.load(io.BytesIO(data), map_location="cpu", weights_only=True))
            found = [(part.dtype, part.shape) for part in (*sent.rows, *sent.keys)]
        except (RuntimeError, EOFError, TypeError, AttributeError, pickle.UnpicklingError) as error:
            raise ValueError(f"no KV of a prefill server: {error}") from error
        stored = [*(cache.rows for cache in caches), *(cache.keys for cache in caches)]
        wanted = [(part.dtype, torch.Size((tokens, *part.shape[1:]))) for part in stored]
        if found != wanted or drafting != (sent.hidden is not None):
            raise ValueError("the prefill server has another model or other KV settings")
        return sent


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


Place = tuple[int, tuple[int, ...]]
"""The page in front, 0 at the beginning, and the tokens of this one."""


class PagePool:
    """Free pages, and known ones, of which those that nobody uses are given back, least recently used first.

    Page 0 is never given out: padding points at it.
    """

    def __init__(self, pages: int, page_size: int, *, reuse: bool) -> None:
        self.page_size, self.reuse = page_size, reuse
        self.total = pages
        self.evicted = 0
        self.clear()

    def clear(self) -> None:
        """Forget all prefixes. No request may be running."""
        self._free = list(range(self.total, 0, -1))
        self._known: dict[Place, int] = {}
        self._places: dict[int, Place] = {}
        self._users: Counter[int] = Counter()
        """Running requests that read a known page; one in front has at least as many as those behind it."""
        self._unused: dict[int, None] = {}
        """Known pages without users in the order of their last use, each behind all that continue it."""

    @property
    def available(self) -> int:
        """Pages that `take` can give, evictable ones included."""
        return len(self._free) + len(self._unused)

    @property
    def used(self) -> int:
        """Pages that running requests hold."""
        return self.total - self.available

    def match(self, tokens: Sequence[int]) -> list[int]:
        """The longest known path of full pages, short of the last token, which must be computed to get logits."""
        path: list[int] = []
        for chunk in self._chunks(tokens[:-1]):
            page = self._known.get((path[-1] if path else 0, chunk))
            if page is None:
                break
            path.append(page)
        return path

    def hold(self, path: Sequence[int]) -> None:
        """Protect known pages from eviction."""
        for page in path:
            self._users[page] += 1
            self._unused.pop(page, None)

    def release(self, path: Sequence[int]) -> None:
        """Undo one `hold` of a path."""
        for page in reversed(path):  # the last page is the first to be evicted: nothing continues it
            self._users[page] -= 1
            if not self._users[page]:
                self._unused[page] = None

    def take(self, count: int) -> list[int]:
        """Give `count` pages; `available` must be at least that."""
        while count > len(self._free):
            page = next(iter(self._unused))
            del self._unused[page], self._known[self._places.pop(page)]
            self._free.append(page)
            self.evicted += 1
        taken = self._free[len(self._free) - count :]
        del self._free[len(self._free) - count :]
        return taken

    def give_back(self, pages: Sequence[int]) -> None:
        """Return pages whose content is not known."""
        self._free.extend(pages)

    def insert(self, tokens: Sequence[int], pages: Sequence[int], path: list[int]) -> set[int]:
        """Make the full pages of a sequence known, and hold them for the caller.

        `pages[i]` holds the i-th page of `tokens`; `path` is what is held so far and grows to all full pages.
        Returns those of `pages` that are known now; where somebody was faster, the caller keeps its own copy.
        """
        new: set[int] = set()
        chunks = list(self._chunks(tokens)) if self.reuse else []
        for index in range(len(path), len(chunks)):
            place = (path[-1] if path else 0, chunks[index])
            page = self._known.setdefault(place, pages[index])
            if page not in self._places:
                self._places[page] = place
                new.add(page)
            self.hold([page])
            path.append(page)
        return new

    def _chunks(self, tokens: Sequence[int]) -> Iterator[tuple[int, ...]]:
        size = self.page_size
        for start in range(0, len(tokens) - size + 1, size):
            yield tuple(tokens[start : start + size])
