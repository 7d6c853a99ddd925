"""HiSparse: rows of a request's hot tokens on the device, all of its rows in a host store.

A decode step attends to index_topk tokens of each request, mostly those of the steps before. So the device keeps, per
request and layer, a buffer of rows: a selected token that is there is a hit; the others are swapped in from the host
store, each in the place of the token that was selected least recently (LRU). The row of the new token is written to the
device and backed up at once, so whatever is evicted can simply be forgotten. Indexer keys, which every step reads in
full, stay on the device. (sglang 0.5.23 hisparse_coordinator.py, hisparse.cuh)

Prefill needs all rows of its prompt on the device; when it is done they are backed up, and the buffer keeps the last of
them. A sequence that is no longer than its buffer has every token in it, and needs no lookup.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from dsabench.reference.counters import Counters
from dsabench.reference.latent_cache import LayerCache
from dsabench.reference.prefix_cache import PagePool
from dsabench.reference.request import Request
from dsabench.reference.settings import HiSparse

_NEVER = torch.iinfo(torch.int64).max
"""Last use of a slot that a request does not have: it is nobody's victim."""


@dataclass(frozen=True, slots=True)
class Residents:
    """Who is in the buffers of one layer; R requests, B slots each, positions up to the context length."""

    slot_of: torch.Tensor
    """[R, context] int32: the buffer's slot that a position has, or -1."""
    position_of: torch.Tensor
    """[R, B] int32: the inverse."""
    used: torch.Tensor
    """[R, B] int64: the step in which the slot's token was last selected."""
    host: torch.Tensor
    """[slots, row] the layer's host store."""


class HotBuffers:
    """The device's pool of rows, what of it each running request has, and the host store."""

    def __init__(
        self, how: HiSparse, caches: list[LayerCache], pool: PagePool, counters: Counters, *, rows: int, context: int
    ) -> None:
        self.pool = pool
        self._how, self._counters, self._caches = how, counters, caches
        self._step = 0
        device = caches[0].rows.device
        self._in_page = torch.arange(pool.page_size, device=device)
        self.staged = torch.zeros(rows, context, dtype=torch.int64, device=device)
        """[R, context] device slots of a prompt that is being prefilled."""
        self._slots = torch.zeros(rows, how.device_buffer_size, dtype=torch.int64, device=device)
        self._layers = [
            Residents(
                torch.full((rows, context), -1, dtype=torch.int32, device=device),
                torch.full((rows, how.device_buffer_size), -1, dtype=torch.int32, device=device),
                torch.full((rows, how.device_buffer_size), _NEVER, dtype=torch.int64, device=device),
                # one slot per indexer key; pinned, so that a device could read it
                torch.empty(
                    len(cache.keys), cache.rows.shape[1], dtype=cache.rows.dtype, pin_memory=device.type == "cuda"
                ),
            )
            for cache in caches
        ]

    @property
    def host(self) -> list[torch.Tensor]:
        """Per layer the store of all rows."""
        return [layer.host for layer in self._layers]

    def pages_for(self, request: Request, *, prefilled: bool = False) -> int:
        """Device pages that it needs to be admitted: for its whole prompt, unless another server has computed that."""
        size = self.pool.page_size
        buffered = min(-(-request.total_tokens // size), self._how.device_buffer_size // size)
        return buffered if prefilled else max(buffered, -(-len(request.prompt) // size))

    def admit(self, request: Request, *, prefilled: bool = False) -> None:
        """Give a request its device pages; its row in the tables is known."""
        request.device_pages = self.pool.take(self.pages_for(request, prefilled=prefilled))
        staged = self._slots_of(request.device_pages)[: self.staged.shape[1]]
        self.staged[request.row, : len(staged)] = staged

    def settle(self, request: Request, slots: torch.Tensor) -> None:
        """Back up a prefilled prompt from its staged rows, and keep the last pages of them; `slots` are its own [L]."""
        staged = self.staged[request.row, : len(slots)]
        for cache, layer in zip(self._caches, self._layers, strict=True):
            self._back_up(cache, layer, staged, slots)
        surplus = len(request.device_pages) - self.pages_for(request, prefilled=True)
        self.pool.give_back(request.device_pages[:surplus])
        request.device_pages = request.device_pages[surplus:]
        self._assign(request, surplus * self.pool.page_size)

    def preload(self, request: Request, slots: torch.Tensor) -> None:
        """Fill the buffer of a request whose rows are in the host store already; `slots` are its own [L]."""
        size = self.pool.page_size
        first = max(0, -(-len(slots) // size) - len(request.device_pages)) * size
        self._assign(request, first)
        to = self._slots[request.row, : len(slots) - first]
        for cache, layer in zip(self._caches, self._layers, strict=True):
            cache.rows.index_copy_(0, to, layer.host.index_select(0, slots[first:].to(layer.host.device)).to(to.device))

    def release(self, request: Request) -> None:
        """Take everything back."""
        self.pool.give_back(request.device_pages)
        request.device_pages = []
        self.staged[request.row].zero_()
        for layer in self._layers:
            layer.slot_of[request.row] = -1
            layer.position_of[request.row] = -1
            layer.used[request.row] = _NEVER

    def start_step(self, rows: torch.Tensor, slots: torch.Tensor, positions: torch.Tensor) -> HotStep:
        """Begin a decode step of requests with rows [B] in the tables; slots [B, L] of their tokens, new positions [B]."""
        self._step += 1
        longest = int(positions.max()) + 1
        return HotStep(self, rows, slots, positions, short=longest <= self._how.device_buffer_size)

    def _assign(self, request: Request, first: int) -> None:
        """Positions from the first on have the slots of its pages in order, those of tokens to come as well."""
        slots = self._slots_of(request.device_pages)
        count = len(slots)
        self._slots[request.row, :count] = slots
        order = torch.arange(count, dtype=torch.int32, device=slots.device)
        for layer in self._layers:
            room = min(count, layer.slot_of.shape[1] - first)
            layer.slot_of[request.row, first : first + room] = order[:room]
            layer.position_of[request.row, :room] = order[:room] + first
            layer.used[request.row, :count] = 0

    def _slots_of(self, pages: list[int]) -> torch.Tensor:
        starts = torch.tensor(pages, device=self._in_page.device).unsqueeze(1) * self.pool.page_size
        return (starts + self._in_page).flatten()

    def find(self, step: HotStep, index: int, positions: torch.Tensor) -> torch.Tensor:
        """Swap in what is missing: positions [B, K], -1 where there are fewer → device slots [B, K], -1 there too."""
        layer, rows = self._layers[index], step.rows.unsqueeze(1)
        selected = positions >= 0
        if step.short:
            self._counters.hot_buffer["short_sequence_tokens"] += int(selected.sum()) if index == 0 else 0
            found = positions.clamp(min=0)
        else:
            found = layer.slot_of[rows, positions.clamp(min=0)].to(torch.int64)
            row, column = (selected & (found >= 0)).nonzero(as_tuple=True)
            layer.used[step.rows[row], found[row, column]] = self._step
            self._counters.hot_buffer["hits"] += len(row)
            missing = selected & (found < 0)
            if bool(missing.any()):
                self._swap_in(step, index, positions, missing, found)
        return torch.where(selected, self._slots[rows, found.clamp(min=0)], -1)

    def _swap_in(
        self, step: HotStep, index: int, positions: torch.Tensor, missing: torch.Tensor, found: torch.Tensor
    ) -> None:
        """Give each missing position a slot and its row; `found` learns of it."""
        layer, cache = self._layers[index], self._caches[index]
        row, column = missing.nonzero(as_tuple=True)
        most = int(missing.sum(1).max())
        oldest = layer.used[step.rows].argsort(dim=1, stable=True)[:, :most]
        victims = oldest[row, (missing.cumsum(1) - 1)[row, column]]
        wanted = positions[row, column]
        self._replace(layer, step.rows[row], victims, wanted)
        found[row, column] = victims
        sources, to = step.slots[row, wanted], self._slots[step.rows[row], victims]
        block = self._how.swap_in_block_size
        for source, target in zip(torch.split(sources, block), torch.split(to, block), strict=True):
            rows = layer.host.index_select(0, source.to(layer.host.device))
            cache.rows.index_copy_(0, target, rows.to(cache.rows.device, non_blocking=True))
        self._counters.hot_buffer["misses"] += len(row)
        self._counters.hot_buffer["bytes_in"] += len(row) * cache.rows[0].nbytes

    def _replace(self, layer: Residents, rows: torch.Tensor, slots: torch.Tensor, positions: torch.Tensor) -> None:
        before = layer.position_of[rows, slots].to(torch.int64)
        known = before >= 0
        layer.slot_of[rows[known], before[known]] = -1
        layer.position_of[rows, slots] = positions.to(torch.int32)
        layer.slot_of[rows, positions] = slots.to(torch.int32)
        layer.used[rows, slots] = self._step

    def place_new(self, step: HotStep, index: int) -> torch.Tensor:
        """Device slots [B] for the rows of the new tokens, in the place of those that were used least recently."""
        layer = self._layers[index]
        found = layer.slot_of[step.rows, step.positions].to(torch.int64)
        if not step.short:
            homeless = (found < 0).nonzero().squeeze(1)
            if len(homeless):
                rows = step.rows[homeless]
                found[homeless] = victims = layer.used[rows].argmin(1)
                self._replace(layer, rows, victims, step.positions[homeless])
        return self._slots[step.rows, found]

    def back_up(self, index: int, device_slots: torch.Tensor, slots: torch.Tensor) -> None:
        """Copy rows from the device to the host store."""
        self._back_up(self._caches[index], self._layers[index], device_slots, slots)

    def _back_up(self, cache: LayerCache, layer: Residents, device_slots: torch.Tensor, slots: torch.Tensor) -> None:
        rows = cache.rows.index_select(0, device_slots)
        layer.host.index_copy_(0, slots.to(layer.host.device), rows.to(layer.host.device))
        self._counters.hot_buffer["bytes_out"] += rows.nbytes


@dataclass(frozen=True, slots=True)
class HotStep:
    """One decode step over hot buffers, for B requests."""

    buffers: HotBuffers
    rows: torch.Tensor
    """[B] of each request in the tables."""
    slots: torch.Tensor
    """[B, L] of its tokens in the host store."""
    positions: torch.Tensor
    """[B] of its new token."""
    short: bool
    """Every sequence lies in its buffer from end to end."""

    def write(self, cache: LayerCache, slots: torch.Tensor, rows: torch.Tensor, keys: torch.Tensor | None) -> None:
        """Store the new tokens of one layer: keys in slots [B], rows in the buffers and, at once, in the host store."""
        device_slots = self.buffers.place_new(self, cache.layer)
        cache.write(device_slots, slots, rows, keys)
        self.buffers.back_up(cache.layer, device_slots, slots)

    def find(self, layer: int, positions: torch.Tensor) -> torch.Tensor:
        """Device slots [B, K] of selected positions [B, K], after what is missing was swapped in."""
        return self.buffers.find(self, layer, positions)
