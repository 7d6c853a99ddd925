"""HiSparse: rows of a request's hot tokens on the device, all of its rows in a host store.

A decode step attends to index_topk tokens of each request, mostly those of the steps before. So the device keeps, per
request and layer, a buffer of rows: a selected token that is there is a hit; the others are swapped in from the host
store, each in the place of the token that was selected least recently (LRU). The row of the new token is written to the
device and backed up at once, so whatever is evicted can simply be forgotten. Indexer keys, which every step reads in
full, stay on the device. (sglang 0.5.23 hisparse_coordinator.py, hisparse.cuh)

Prefill needs all rows of its prompt on the device; when it is done they are backed up, and the buffer keeps the last of
them. A sequence that is no longer than its buffer has every token in it, and needs no lookup.

A verification has several new tokens of a request. They are written first, and attend in turns, so that a buffer need
hold no more than one selection; what a turn evicts, the next one may swap in again.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from dsabench.reference.engine.counters import EngineCounters
from dsabench.reference.engine.kv_cache import LayerCache, PagePool, slots_of
from dsabench.reference.engine.request import Request
from dsabench.reference.engine.settings import HiSparseConfig

Kernel = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
"""Queries [n, H, D] and device slots [n, K] → [n, H, C]."""
_DEPTHS_EVERY = 8
"""Steps of which one counts how long ago its hits were used, which takes a sort of each buffer."""
_NEVER = torch.iinfo(torch.int64).max
"""Last use of a slot that a request does not have: it is nobody's victim."""


class HotBuffers:
    """The device's pool of rows, what of it each running request has, and the host store."""

    def __init__(
        self,
        how: HiSparseConfig,
        caches: Sequence[LayerCache],
        pool: PagePool,
        counters: EngineCounters,
        *,
        rows: int,
        context: int,
    ) -> None:
        """R = `rows` requests run at once, B is the buffer's size."""
        self.how, self.pool, self.counters, self.caches = how, pool, counters, caches
        device = caches[0].rows.device
        self._clock = 1  # slots that are just given have 0
        self._steps = 0
        self._outgrown: set[int] = set()
        """Requests, by their row in the tables, that were ever longer than their buffer."""
        self.slots = torch.zeros(rows, how.device_buffer_size, dtype=torch.int64, device=device)
        """[R, B] device slots of the buffers, the same in all layers."""
        shape = len(caches), rows, how.device_buffer_size
        self.slot_of = torch.full((len(caches), rows, context), -1, dtype=torch.int32, device=device)
        """[layers, R, context]: the buffer's slot that a position has, or -1."""
        self.position_of = torch.full(shape, -1, dtype=torch.int32, device=device)
        """[layers, R, B]: the inverse."""
        self.used = torch.full(shape, _NEVER, dtype=torch.int64, device=device)
        """[layers, R, B]: when the slot's token was last selected."""
        # one slot per indexer key; pinned, so that a device could read it
        self.host = [
            torch.empty(
                len(cache.keys), *cache.rows.shape[1:], dtype=cache.rows.dtype, pin_memory=device.type == "cuda"
            )
            for cache in caches
        ]
        """Per layer the store of all rows."""

    def pages_for(self, request: Request, *, prefilled: bool = False) -> int:
        """Device pages that it needs to be admitted: for its whole prompt, unless another server has computed that."""
        size = self.pool.page_size
        buffered = min(-(-request.total_tokens // size), self.how.device_buffer_size // size)
        return buffered if prefilled else max(buffered, -(-len(request.prompt) // size))

    def admit(self, request: Request, *, prefilled: bool = False) -> None:
        """Give a request its device pages; its row in the tables is known."""
        request.device_pages = self.pool.take(self.pages_for(request, prefilled=prefilled))

    def staged(self, request: Request) -> torch.Tensor:
        """Slots of its device pages in order: where its prompt is while it is prefilled, then its buffer."""
        return slots_of(request.device_pages, self.pool.page_size, self.slots.device)

    def settle(self, request: Request, slots: torch.Tensor) -> None:
        """Back up a prefilled prompt from its staged rows, and keep the last pages of them; `slots` are its own [L]."""
        staged = self.staged(request)[: len(slots)]
        for layer in range(len(self.caches)):
            self.back_up(layer, staged, slots)
        surplus = len(request.device_pages) - self.pages_for(request, prefilled=True)
        self.pool.give_back(request.device_pages[:surplus])
        request.device_pages = request.device_pages[surplus:]
        self._assign(request, surplus * self.pool.page_size)

    def preload(self, request: Request, slots: torch.Tensor) -> None:
        """Fill the buffer of a request whose rows are in the host store already; `slots` are its own [L]."""
        size = self.pool.page_size
        first = max(0, -(-len(slots) // size) - len(request.device_pages)) * size
        self._assign(request, first)
        for layer in range(len(self.caches)):
            self.fetch(layer, slots[first:], self.slots[request.row, : len(slots) - first])

    def release(self, request: Request) -> None:
        """Take everything back."""
        row = request.table_row
        self.pool.give_back(request.device_pages)
        request.device_pages = []
        self.slot_of[:, row] = self.position_of[:, row] = -1
        self.used[:, row] = _NEVER
        self._outgrown.discard(row)

    def start_step(self, rows: Sequence[int], positions: Sequence[int], slots: torch.Tensor) -> HotBufferStep:
        """Begin a decode step: of each new token its request's row in the tables, its position, its sequence's slots [L]."""
        buffer, device = self.how.device_buffer_size, slots.device
        self._outgrown.update(row for row, position in zip(rows, positions, strict=True) if position >= buffer)
        short = self._outgrown.isdisjoint(rows)
        turns: dict[int, list[int]] = defaultdict(list)
        seen: Counter[int] = Counter()
        for index, row in enumerate(rows):
            turns[seen[row]].append(index)
            seen[row] += 1
        started, self._clock = self._clock, self._clock + 1 + len(turns)
        of_rows, of_positions = torch.tensor(rows, device=device), torch.tensor(positions, device=device)
        members = [torch.tensor(turn, device=device) for turn in turns.values()]
        self._steps += 1
        counts = self._steps % _DEPTHS_EVERY == 0
        return HotBufferStep(
            self,
            tuple(
                SwapInGroup(
                    self, who, of_rows[who], slots[who], of_positions[who], started, started + number, short, counts
                )
                for number, who in enumerate(members, 1)
            ),
        )

    def back_up(self, layer: int, device_slots: torch.Tensor, slots: torch.Tensor) -> None:
        """Copy rows from the device to the host store."""
        host, rows = self.host[layer], self.caches[layer].rows.index_select(0, device_slots)
        host.index_copy_(0, slots.to(host.device), rows.to(host.device))
        self.counters.hot_buffer["bytes_out"] += rows.nbytes

    def fetch(self, layer: int, slots: torch.Tensor, device_slots: torch.Tensor) -> None:
        """Copy rows from the host store to the device, so many at a time."""
        host, rows, block = self.host[layer], self.caches[layer].rows, self.how.swap_in_block_size
        for source, target in zip(torch.split(slots, block), torch.split(device_slots, block), strict=True):
            copied = host.index_select(0, source.to(host.device)).to(rows.device, non_blocking=True)
            rows.index_copy_(0, target, copied)

    def count_depths(self, layer: int, rows: torch.Tensor, selected: torch.Tensor, found: torch.Tensor) -> None:
        """Count the smallest buffer that would have had each selected token: found [n, K] slots, -1 where it is missing.

        The least recently used token goes first, so a buffer of N rows has those N that were used last, and one that is larger has
        them too: what one buffer sees tells the hits of every smaller one (Mattson et al. 1970, "Evaluation techniques for
        storage hierarchies").
        """
        used, size = self.used[layer, rows], self.pool.page_size
        oldest_first = used.argsort(dim=1, stable=True)
        place = torch.empty_like(oldest_first)
        place.scatter_(1, oldest_first, torch.arange(used.shape[1], device=used.device).expand_as(used))
        newer = (used < _NEVER).sum(1, keepdim=True) - 1 - place.gather(1, found.clamp(min=0))
        hits = selected & (found >= 0)
        for page, count in enumerate(torch.bincount(newer[hits] // size).tolist()):
            self.counters.hot_buffer_rows[(page + 1) * size] += count
        self.counters.hot_buffer_rows[0] += int(selected.sum()) - int(hits.sum())

    def _assign(self, request: Request, first: int) -> None:
        """Positions from the first on have the slots of its pages in order, those of tokens to come as well."""
        slots = self.staged(request)
        count = len(slots)
        room = min(count, self.slot_of.shape[2] - first)
        order = torch.arange(count, dtype=torch.int32, device=slots.device)
        self.slots[request.row, :count] = slots
        self.slot_of[:, request.row, first : first + room] = order[:room]
        self.position_of[:, request.row, :room] = order[:room] + first
        self.used[:, request.row, :count] = 0


@dataclass(frozen=True, slots=True)
class HotBufferStep:
    """One decode step over hot buffers, for T new tokens."""

    buffers: HotBuffers
    turns: tuple[SwapInGroup, ...]
    """One where each request has one token; else the first tokens of all, the second ones, and so on."""

    def write(self, cache: LayerCache, slots: torch.Tensor, rows: torch.Tensor, keys: torch.Tensor | None) -> None:
        """Store the new tokens of one layer: keys in slots [T], rows in the buffers and, at once, in the host store."""
        device_slots = torch.empty_like(slots)
        for turn in self.turns:
            device_slots[turn.members] = turn.place(cache.layer)
        cache.write(device_slots, slots, rows, keys)
        self.buffers.back_up(cache.layer, device_slots, slots)

    def attend(self, layer: int, q: torch.Tensor, positions: torch.Tensor, kernel: Kernel) -> torch.Tensor:
        """Run the kernel for q [T, H, D] and selected positions [T, K] → [T, H, C]."""
        order = torch.cat([turn.members for turn in self.turns]).argsort()
        outs = [kernel(q[turn.members], turn.find(layer, positions[turn.members])) for turn in self.turns]
        return torch.cat(outs)[order]


@dataclass(frozen=True, slots=True)
class SwapInGroup:
    """New tokens of a decode step that attend at once, at most one of each request: n of T."""

    buffers: HotBuffers
    members: torch.Tensor
    """[n] rows of the batch."""
    rows: torch.Tensor
    """[n] of each request in the tables."""
    slots: torch.Tensor
    """[n, L] of its tokens in the host store."""
    positions: torch.Tensor
    """[n] of its new token."""
    written: int
    """When new tokens are placed: before anything is selected, so that what is selected now is newer than all else."""
    now: int
    short: bool
    """Every sequence lies in its buffer from end to end."""
    counts: bool
    """Whether this step counts how long ago what it selects was used."""

    def place(self, layer: int) -> torch.Tensor:
        """Device slots [n] for the rows of the new tokens, in the place of those that were used least recently."""
        found = self.buffers.slot_of[layer, self.rows, self.positions].to(torch.int64)
        homeless = (found < 0).nonzero().squeeze(1)
        if len(homeless):
            rows = self.rows[homeless]
            found[homeless] = victims = self.buffers.used[layer, rows].argmin(1)
            self._replace(layer, rows, victims, self.positions[homeless], self.written)
        self.buffers.used[layer, self.rows, found] = self.written  # also of those that a rejected draft had filled
        return self.buffers.slots[self.rows, found]

    def find(self, layer: int, positions: torch.Tensor) -> torch.Tensor:
        """Swap in what is missing: positions [n, K], -1 where there are fewer → device slots [n, K], -1 there too."""
        buffers, rows = self.buffers, self.rows.unsqueeze(1)
        selected, found = positions >= 0, positions.clamp(min=0)
        if self.short:
            buffers.counters.hot_buffer["short_sequence_tokens"] += int(selected.sum()) if layer == 0 else 0
        else:
            found = buffers.slot_of[layer, rows, found].to(torch.int64)
            if self.counts:
                buffers.count_depths(layer, self.rows, selected, found)
            row, column = (selected & (found >= 0)).nonzero(as_tuple=True)
            buffers.used[layer, self.rows[row], found[row, column]] = self.now
            buffers.counters.hot_buffer["hits"] += len(row)
            missing = selected & (found < 0)
            if bool(missing.any()):
                self._swap_in(layer, positions, missing, found)
        return torch.where(selected, buffers.slots[rows, found.clamp(min=0)], -1)

    def _swap_in(self, layer: int, positions: torch.Tensor, missing: torch.Tensor, found: torch.Tensor) -> None:
        """Give each missing position a slot and its row; `found` learns of it."""
        buffers = self.buffers
        row, column = missing.nonzero(as_tuple=True)
        most = int(missing.sum(1).max())
        oldest = buffers.used[layer, self.rows].argsort(dim=1, stable=True)[:, :most]
        victims = oldest[row, (missing.cumsum(1) - 1)[row, column]]
        wanted, rows = positions[row, column], self.rows[row]
        self._replace(layer, rows, victims, wanted, self.now)
        found[row, column] = victims
        buffers.fetch(layer, self.slots[row, wanted], buffers.slots[rows, victims])
        buffers.counters.hot_buffer["misses"] += len(row)
        buffers.counters.hot_buffer["bytes_in"] += len(row) * buffers.caches[layer].rows[0].nbytes

    def _replace(self, layer: int, rows: torch.Tensor, slots: torch.Tensor, positions: torch.Tensor, used: int) -> None:
        buffers = self.buffers
        before = buffers.position_of[layer, rows, slots].to(torch.int64)
        known = before >= 0
        buffers.slot_of[layer, rows[known], before[known]] = -1
        buffers.position_of[layer, rows, slots] = positions.to(torch.int32)
        buffers.slot_of[layer, rows, positions] = slots.to(torch.int32)
        buffers.used[layer, rows, slots] = used
