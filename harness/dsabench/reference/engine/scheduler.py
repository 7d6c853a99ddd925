"""Continuous batching: who runs in the next step, and where their tokens go.

A step is either a prefill of at most `chunked_prefill_size` new tokens or a decode of all running requests. Prefill
goes first, as in sglang. A request is admitted when the pages for its whole length, prompt and max_new_tokens, are
free or evictable; so nobody is ever thrown out again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from dsabench.reference.engine.batch import DecodeBatch, ForwardBatch, PrefillBatch, PrefillSpan
from dsabench.reference.engine.counters import EngineCounters
from dsabench.reference.engine.hot_buffer import HotBuffers
from dsabench.reference.engine.kv_cache import KvTransfer, LayerCache, PagePool, slots_of
from dsabench.reference.engine.request import FinishReason, Request
from dsabench.reference.engine.settings import EngineSettings


@dataclass(frozen=True, slots=True)
class EngineStep:
    """What to run, and whose tokens the wanted rows are."""

    batch: ForwardBatch
    requests: tuple[Request, ...]
    members: tuple[Request, ...]
    """All that the batch has tokens of; in prefill some go on with their prompt in the next step."""
    drafts: tuple[Sequence[int], ...] = ()
    """In decode: the guessed tokens of each request, whose rows follow that of its last token."""


@dataclass(frozen=True, slots=True)
class TokenRun:
    """Consecutive tokens of one running request, the first of them at a position."""

    request: Request
    position: int
    tokens: Sequence[int]


class Scheduler:
    """Queues, pages and the table of slots."""

    def __init__(self, settings: EngineSettings, counters: EngineCounters, caches: list[LayerCache]) -> None:
        self._settings, self._counters = settings, counters
        self.caches = caches
        """Of all layers, the draft head's last where there is one."""
        self.pool = PagePool(settings.pages, settings.page_size, reuse=settings.prefix_reuse)
        self.waiting: deque[Request] = deque()
        self.prefilling: list[Request] = []
        self.running: list[Request] = []
        longest = -(-settings.context_length // settings.page_size) * settings.page_size
        rows = min(settings.max_running_requests, settings.pages)  # a request has at least one page
        self._slots = torch.zeros(rows, longest, dtype=torch.int64, device=settings.device)
        self._free_rows = list(range(rows))
        self.limit = settings.max_micro_batch_size
        """Requests that may run; it changes while the server runs."""
        self.hot: HotBuffers | None = None
        if settings.hisparse is not None:
            pool = PagePool(settings.device_pages, settings.page_size, reuse=False)
            self.hot = HotBuffers(settings.hisparse, caches, pool, counters, rows=rows, context=longest)

    def add(self, request: Request) -> None:
        """Queue a request; it was checked that it can fit."""
        self._counters.requests += 1
        self.waiting.append(request)

    def abort(self, request_id: str | None, message: str) -> list[Request]:
        """End one request, or all where the id is None; returns those that were still there."""
        everyone = [*self.waiting, *self.prefilling, *self.running]
        ended = [request for request in everyone if request_id in {None, request.id}]
        for request in ended:
            request.finish = FinishReason("abort", message=message)
            if request in self.waiting:
                self.waiting.remove(request)
            else:
                self._leave(request)
        self._counters.aborted_requests += len(ended)
        return ended

    def flush(self) -> bool:
        """Forget all prefixes; False where requests are running or waiting."""
        if self.waiting or self.prefilling or self.running:
            return False
        self.pool.clear()
        return True

    def welcome(self) -> list[Request]:
        """Admit requests that a prefill server has begun; they go on in the next decode step."""
        arrived: list[Request] = []
        while (request := self._admit(prefilled=True)) is not None and request.transfer is not None:
            self._store(request, request.transfer)
            arrived.append(request)
        return arrived

    def _store(self, request: Request, transfer: KvTransfer) -> None:
        """Put what the prefill server computed where this server would have, and its token to the output."""
        slots = self._slots[request.row, : len(request.prompt)]
        for rows, keys, cache, stored in zip(transfer.rows, transfer.keys, self.caches, self._stores, strict=True):
            stored.index_copy_(0, slots.to(stored.device), rows.to(stored.device))
            cache.keys.index_copy_(0, slots, keys.to(slots.device))
        if self.hot is not None:
            self.hot.preload(request, slots)
        request.stored_tokens, request.transfer = len(request.prompt), None
        request.hidden = None if transfer.hidden is None else transfer.hidden.to(slots.device)
        self._counters.handed_over.update(requests=1, tokens=len(slots), bytes=transfer.nbytes)
        self.prefilling.remove(request)
        self.running.append(request)
        self._take_tokens(request, [transfer.first_token], 0)

    def next_prefill(self) -> EngineStep | None:
        """The next chunk of prompts, or None where no prompt can go on."""
        parts = self._plan_prefill()
        return self._prefill(parts) if parts else None

    def next_decode(self, drafts: Sequence[Sequence[int]] | None = None) -> EngineStep | None:
        """The last token of each running request, followed by its drafts where there are any; None where none runs."""
        if not self.running:
            return None
        requests = tuple(self.running)
        self._counters.decode_step_requests[len(requests)] += 1
        guessed = tuple(drafts or [()] * len(requests))
        pairs = zip(requests, guessed, strict=True)
        runs = [TokenRun(request, request.stored_tokens, [request.output[-1], *guess]) for request, guess in pairs]
        return EngineStep(self.decode_batch(runs), requests, requests, guessed)

    def commit(self, step: EngineStep, tokens: Sequence[Sequence[int]]) -> None:
        """Record that a step ran and what it chose for each of its requests: one token, or more where drafts held."""
        prefilled = isinstance(step.batch.shape, PrefillBatch)
        for request, chosen in zip(step.requests, tokens, strict=True):
            if prefilled:
                self.prefilling.remove(request)
                self.running.append(request)
                self._publish(request, request.prompt)
                if self.hot is not None:
                    self.hot.settle(request, self._slots[request.row, : len(request.prompt)])
            self._take_tokens(request, chosen, 0 if prefilled else len(chosen))

    def _take_tokens(self, request: Request, chosen: Sequence[int], stored: int) -> None:
        """Add tokens up to the one that ends the request; as many as `stored` of them have their KV in the cache."""
        for count, token in enumerate(chosen, 1):
            request.add(token)
            if request.finish is not None:
                stored = min(stored, count)
                break
        request.stored_tokens += stored
        self._counters.generated_tokens += count
        if request.finish is not None:
            if request.hand_over:
                request.transfer = self._transfer_of(request)
            self._leave(request)

    def _transfer_of(self, request: Request) -> KvTransfer:
        slots = self._slots[request.row, : len(request.prompt)]
        rows = [stored.index_select(0, slots.to(stored.device)) for stored in self._stores]
        keys = [cache.keys.index_select(0, slots) for cache in self.caches]
        transfer = KvTransfer(request.output[0], rows, keys, None if request.hidden is None else request.hidden[-1:])
        self._counters.handed_over.update(requests=1, tokens=len(slots), bytes=transfer.nbytes)
        return transfer

    @property
    def _stores(self) -> list[torch.Tensor]:
        """Per layer where all rows are."""
        return [cache.rows for cache in self.caches] if self.hot is None else self.hot.host

    def _plan_prefill(self) -> list[tuple[Request, int]]:
        """Requests and how many new tokens of each: first those begun, then the queue, in order of arrival."""
        budget = self._settings.chunked_prefill_size or self._settings.pages * self._settings.page_size
        parts: list[tuple[Request, int]] = []
        begun = iter(tuple(self.prefilling))
        while budget > 0:
            request = next(begun, None) or self._admit(prefilled=False)
            if request is None:
                break
            count = min(budget, len(request.prompt) - request.stored_tokens)
            parts.append((request, count))
            budget -= count
        return parts

    def _admit(self, *, prefilled: bool) -> Request | None:
        """The first in the queue, if there is room for it and another server has computed its prompt, or has not."""
        if not self.waiting or not self._free_rows or len(self.prefilling) + len(self.running) >= self.limit:
            return None
        if prefilled != (self.waiting[0].transfer is not None):
            return None
        request = self.waiting[0]
        known = self.pool.match(request.prompt) if self.pool.reuse and not prefilled else []
        self.pool.hold(known)
        missing = -(-request.total_tokens // self.pool.page_size) - len(known)
        crowded = self.hot is not None and self.hot.pages_for(request, prefilled=prefilled) > self.hot.pool.available
        if missing > self.pool.available or crowded:
            self.pool.release(known)
            return None
        self.waiting.popleft()
        fresh = self.pool.take(missing)
        request.path, request.own_pages = known, set(fresh)
        request.pages = known + fresh
        request.stored_tokens = request.cached_tokens = len(known) * self.pool.page_size
        request.row = self._free_rows.pop()
        slots = slots_of(request.pages, self.pool.page_size, self._slots.device)[: self._slots.shape[1]]
        self._slots[request.row, : len(slots)] = slots
        if self.hot is not None:
            self.hot.admit(request, prefilled=prefilled)
        self._counters.prompt_tokens += len(request.prompt)
        self._counters.cached_tokens += request.cached_tokens
        self.prefilling.append(request)
        return request

    def _prefill(self, parts: Sequence[tuple[Request, int]]) -> EngineStep:
        spans, tokens, positions, wanted, ending = [], [], [], [], []
        total_kv = longest = start = 0
        for request, count in parts:
            first, stop = request.stored_tokens, start + count
            length = request.stored_tokens = first + count
            slots = self._slots[request.row, :length]
            spans.append(
                PrefillSpan(start, stop, slots, slots if self.hot is None else self.hot.staged(request)[:length])
            )
            tokens += request.prompt[first:length]
            positions.append(torch.arange(first, length, device=self._slots.device))
            if length == len(request.prompt):
                wanted.append(stop - 1)
                ending.append(request)
            total_kv, longest, start = total_kv + length, max(longest, length), stop
        self._counters.prefill_step_tokens[start] += 1
        batch = ForwardBatch(
            tokens=torch.tensor(tokens, device=self._slots.device),
            positions=torch.cat(positions),
            slots=torch.cat([span.slots[-span.new_tokens :] for span in spans]),
            row_slots=torch.cat([span.row_slots[-span.new_tokens :] for span in spans]),
            wanted=torch.tensor(wanted, dtype=torch.int64, device=self._slots.device),
            path=self._settings.prefill_path(new_tokens=start, kv_tokens=total_kv, longest=longest),
            shape=PrefillBatch(tuple(spans)),
        )
        return EngineStep(batch, tuple(ending), tuple(request for request, _ in parts))

    def decode_batch(self, runs: Sequence[TokenRun]) -> ForwardBatch:
        """A row per token of each run, run after run. Rows of one run see those before them, which are stored first."""
        device, page = self._slots.device, self.pool.page_size
        places = [run.position + step for run in runs for step in range(len(run.tokens))]
        positions = torch.tensor(places, device=device)
        rows = [run.request.table_row for run in runs for _ in run.tokens]
        longest = 1 + max(places)
        slots = self._slots[rows, : -(-longest // page) * page]
        new = slots.gather(1, positions.unsqueeze(1)).squeeze(1)
        hot = None if self.hot is None else self.hot.start_step(rows, places, slots)
        return ForwardBatch(
            tokens=torch.tensor([token for run in runs for token in run.tokens], device=device),
            positions=positions,
            slots=new,
            row_slots=new,
            wanted=torch.arange(len(places), device=device),
            path=self._settings.decode_backend,
            shape=DecodeBatch(slots, positions + 1, longest, page, hot),
        )

    def _publish(self, request: Request, tokens: Sequence[int]) -> None:
        """Let others reuse the full pages of the tokens, all of which are stored."""
        request.own_pages -= self.pool.insert(tokens, request.pages, request.path)

    def _leave(self, request: Request) -> None:
        if request in self.running:
            self.running.remove(request)
            self._publish(request, (request.prompt + request.output)[: request.stored_tokens])
        else:
            self.prefilling.remove(request)
        self.pool.release(request.path)
        self.pool.give_back(sorted(request.own_pages, reverse=True))
        if self.hot is not None:
            self.hot.release(request)
        # padding beyond a successor's pages reads page 0
        self._slots[request.row].zero_()
        self._free_rows.append(request.table_row)
        request.path, request.pages, request.own_pages, request.row = [], [], set(), None
        request.hidden = None
        self._counters.evicted_pages = self.pool.evicted
