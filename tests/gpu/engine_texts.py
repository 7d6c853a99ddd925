"""Engines without HTTP: greedy texts of fixed prompts, and how near the second best token was at each place.

    python engine_texts.py '[["--device", "cuda"], ["--device", "cuda", "--dsa-decode-backend", "triton"]]'

A JSON line per list of flags. A process of its own, as TRITON_F32_DEFAULT counts when a kernel is compiled.
"""

from __future__ import annotations

import json
import os
import random
import sys

import torch

from dsabench.reference.engine.engine import Engine
from dsabench.reference.engine.request import Request, SamplingParams
from dsabench.reference.engine.sampler import mask_special_tokens
from dsabench.reference.server.arguments import parse
from dsabench.reference.server.resolve_settings import resolve

LENGTHS = (5, 100, 128, 129, 300, 700, 1500)
"""Of the prompts, in tokens: on both sides of index_topk, which is 128 for `small`."""
NEW = 48
MODEL = ("--model", "small", "--max-total-tokens", "16384", "--disable-radix-cache", "--cpu-threads", "1")


def prompt(length: int) -> list[int]:
    return random.Random(length).choices(range(256), k=length)


@torch.inference_mode()
def run_plainly(engine: Engine) -> dict[str, list[float]]:
    """Every step by hand, for its logits → per request the gap of the two best logits at each place."""
    gaps: dict[str, list[float]] = {}
    scheduler = engine.scheduler
    while (step := scheduler.next_prefill() or scheduler.next_decode()) is not None:
        hidden = engine.model.hidden(step.batch, engine.caches, engine.counters)
        logits = mask_special_tokens(engine.model.logits(hidden[step.batch.wanted]))
        best = logits.topk(2).values
        for request, gap in zip(step.requests, (best[:, 0] - best[:, 1]).tolist(), strict=True):
            gaps.setdefault(request.id, []).append(gap)
        scheduler.commit(step, logits.argmax(-1, keepdim=True).tolist())
    return gaps


def serve(flags: list[str]) -> dict[str, object]:
    engine = Engine(resolve(parse([*MODEL, *flags]), os.environ))
    wanted = SamplingParams(NEW, temperature=0.0, ignore_eos=True)
    requests = [Request(str(length), prompt(length), wanted) for length in LENGTHS]
    for request in requests:
        engine.scheduler.add(request)
    has_own_steps = bool({"--enable-hisparse", "--speculative-algorithm"} & {*flags})
    gaps = {} if has_own_steps else run_plainly(engine)
    while engine.step() is not None:
        pass
    counters = engine.counters
    return {
        "device": engine.settings.device,
        "texts": [request.output for request in requests],
        "gaps": [gaps.get(request.id) for request in requests],
        "tokens": counters.tokens,
        "accept_length": counters.accept_length,
        "hot_buffer": counters.hot_buffer,
        "experts": len(counters.expert_tokens),
    }


if __name__ == "__main__":
    for each in json.loads(sys.argv[1]):
        print(json.dumps(serve(each)), flush=True)
