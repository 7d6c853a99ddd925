"""The engine: model, caches, scheduler and sampler, one forward pass at a time. It belongs to one thread."""

from __future__ import annotations

import logging
import time
from collections import deque
from dataclasses import replace

import torch

from dsabench.reference.engine import kv_cache, mtp, sharding, weights
from dsabench.reference.engine.batch import DecodeBatch, PrefillBatch, empty_batch
from dsabench.reference.engine.counters import EngineCounters
from dsabench.reference.engine.kv_cache import LayerCache
from dsabench.reference.engine.mtp import Drafter, DraftHead, DraftVerifier, keep_hidden
from dsabench.reference.engine.ranks import ALONE, RankGroups
from dsabench.reference.engine.request import Request, SamplingParams
from dsabench.reference.engine.sampler import Sampler
from dsabench.reference.engine.scheduler import EngineStep, Scheduler
from dsabench.reference.engine.settings import EngineSettings
from dsabench.reference.engine.transformer import Transformer

_log = logging.getLogger(__name__)
_WINDOW_STEPS = 40
_WARM_UP = SamplingParams(max_new_tokens=2, temperature=0.0, ignore_eos=True)


class Engine:
    """What serves requests, without threads and without HTTP."""

    def __init__(self, settings: EngineSettings, ranks: RankGroups = ALONE) -> None:
        self.settings = settings
        self.counters = EngineCounters()
        torch.set_num_threads(settings.threads)
        _log.info("Set DSA backends for %s KV Cache: prefill=%s, decode=%s.", settings.kv_cache_dtype,
                  settings.prefill_backend, settings.decode_backend)  # fmt: skip
        started = time.perf_counter()
        whole, head = self._load()
        self.model = whole if ranks.seat.mlp.of == 1 else sharding.shard(whole, ranks)
        _log.info("Load weight end. elapsed=%.2f s, type=%s, dtype=%s", time.perf_counter() - started,
                  settings.size.name, settings.dtype)  # fmt: skip
        self.caches = self._allocate()
        _log.info("KV Cache is allocated. #tokens: %d, KV size: %.2f GB", settings.pool_tokens, self.kv_bytes / 1e9)
        self._sampler = Sampler(settings.random_seed, settings.device)
        self.scheduler = Scheduler(settings, self.counters, self.caches)
        self._drafter = None if settings.draft_steps is None else self._make_drafter(whole, head, settings.draft_steps)
        self._verifier = DraftVerifier(self._sampler, settings.simulated_accept_length, self.counters)
        self._decode_steps: deque[tuple[int, float]] = deque(maxlen=_WINDOW_STEPS)

    def _load(self) -> tuple[Transformer, DraftHead | None]:
        """The whole model, and the draft head that was trained with it; without one it is distilled where it is asked for."""
        settings = self.settings
        if settings.size.is_trained:
            return weights.trained_model(settings.size, settings.dtype, settings.context_length, settings.device)
        model = weights.random_model(
            settings.size, settings.random_seed, settings.dtype, settings.context_length, settings.device
        )
        return model, None

    def _allocate(self) -> list[LayerCache]:
        """Caches of the model's layers and of the draft head's, whose number is that behind the last."""
        settings = self.settings
        drafting = settings.draft_steps is not None
        caches = kv_cache.allocate(
            replace(settings.size, layers=settings.size.layers + drafting),
            (settings.pages + 1) * settings.page_size,  # page 0 is padding
            settings.kv_cache_dtype,
            settings.device,
            (settings.device_pages + 1) * settings.page_size,
        )
        if drafting:
            # the last of a request's accepted drafts never goes through the head, and whoever shares its page must
            # read something finite
            for tensor in (caches[-1].rows, caches[-1].keys):
                tensor.zero_()
        return caches

    def _make_drafter(self, whole: Transformer, head: DraftHead | None, steps: int) -> Drafter:
        head = head or mtp.distil(whole, self.settings.random_seed)
        if self.model is not whole:
            alone = replace(self.model, ranks=replace(self.model.ranks, everyone=None))
            head = replace(head, trunk=alone, block=sharding.shard_for_group(head.block, self.model.ranks.seat))
        return Drafter(head, self.caches[-1], self.scheduler, steps, self.counters)

    @property
    def kv_bytes(self) -> int:
        """Size of the KV pool on the device."""
        rows, keys = self.settings.device_tokens, self.settings.pool_tokens
        return sum(rows * cache.rows[0].nbytes + keys * cache.keys[0].nbytes for cache in self.caches)

    @property
    def decode_tokens_per_s(self) -> float:
        """Generated tokens per second of decoding, over the last steps; 0.0 before the first."""
        steps = tuple(self._decode_steps)
        return sum(tokens for tokens, _ in steps) / sum(seconds for _, seconds in steps) if steps else 0.0

    @torch.inference_mode()
    def step(self) -> tuple[Request, ...] | None:
        """Run one forward pass → the requests that got a token, or None where there was nothing to do.

        With DP attention a group without work runs along empty-handed, as all are needed for the MLPs.
        """
        started = time.perf_counter()
        arrived = tuple(self.scheduler.welcome())
        for request in arrived:
            self._sampler.skip(request)
        step = self.scheduler.next_prefill()
        if step is None:
            drafts = self._drafter.propose(self.scheduler.running) if self._drafter else None
            step = self.scheduler.next_decode(drafts)
        counts = self.model.ranks.token_counts(0 if step is None else len(step.batch.tokens))
        if not any(counts):
            return arrived or None
        batch = empty_batch(self.settings.device) if step is None else step.batch
        hidden = self.model.hidden(batch, self.caches, self.counters, counts if len(counts) > 1 else None)
        if step is None:
            return arrived
        logits = self.model.logits(hidden[step.batch.wanted])
        if self._drafter is not None and isinstance(step.batch.shape, DecodeBatch):
            tokens = self._verifier.choose(logits, step.requests, step.drafts)
            keep_hidden(step, hidden, tokens)
        else:
            tokens = [[token] for token in self._sampler.choose(logits, step.requests)]
            if self._drafter is not None:
                self._drafter.follow(step, hidden)
        self.scheduler.commit(step, tokens)
        self._note(step, tokens, time.perf_counter() - started)
        return *arrived, *(request for request in step.requests if request not in arrived)

    def warm_up(self) -> None:
        """Generate two tokens after a prompt that needs the indexer, so that libraries load what they need; forget it."""
        prompt = [0] * min(
            self.settings.size.index_topk + 1, self.settings.context_length - 2, self.settings.device_tokens - 2
        )
        self.scheduler.add(Request("warm-up", prompt, _WARM_UP))
        while self.step() is not None:
            pass
        self.scheduler.pool.clear()
        self.counters.clear()
        self._decode_steps.clear()

    def _note(self, step: EngineStep, chosen: list[list[int]], seconds: float) -> None:
        pool, running, queued = self.scheduler.pool, len(self.scheduler.running), len(self.scheduler.waiting)
        usage, path = pool.used / pool.total, step.batch.path
        if isinstance(step.batch.shape, PrefillBatch):
            running = sum(request not in step.members for request in self.scheduler.running)
            _log.info("Prefill batch, #new-seq: %d, #new-token: %d, path: %s, token usage: %.2f, #running-req: %d, "
                      "#queue-req: %d", len(step.members), len(step.batch.tokens), path, usage, running, queued)  # fmt: skip
            return
        self._decode_steps.append((sum(map(len, chosen)), seconds))
        if self.counters.decode_step_requests.total() % _WINDOW_STEPS == 0:
            _log.info("Decode batch, #running-req: %d, path: %s, token usage: %.2f, gen throughput (token/s): %.2f, "
                      "#queue-req: %d", len(step.requests), path, usage, self.decode_tokens_per_s, queued)  # fmt: skip
