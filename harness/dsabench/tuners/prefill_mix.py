"""The prefill batches that workloads bring to a rank: how many new tokens over how many in the KV cache, how often."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from dsabench.model.workload import Workload


class Step(NamedTuple):
    """One prefill batch: tokens summed over it, as the runtime counts them."""

    new_tokens: int
    kv_tokens: int


def steps_of(workloads: Iterable[Workload], chunk: int | None) -> Counter[Step]:
    """Batch → how many of it the workloads bring, each workload counting 1 in all.

    Prompts longer than a chunk come in pieces; of shorter ones, as many as fit into a chunk come together (no more
    than are in flight). Workloads whose lengths stand in files are left out. `chunk` None: no chunking.
    """
    mix: Counter[Step] = Counter()
    for workload in workloads:
        steps = _steps(workload, chunk)
        total = sum(steps.values())
        for step, count in steps.items():
            mix[step] += count / total  # type: ignore[assignment]
    return mix


def _steps(workload: Workload, chunk: int | None) -> Counter[Step]:
    prompt = workload.input_len
    if prompt is None:
        return Counter()
    limit = chunk or prompt
    if prompt <= limit:
        together = max(1, min(limit // prompt, workload.max_concurrency or workload.num_prompts))
        return Counter({Step(together * prompt, together * prompt): 1})
    return Counter(pieces_of(prompt, chunk))


def pieces_of(prompt: int, chunk: int | None) -> list[Step]:
    """The batches of one prompt alone."""
    limit = chunk or prompt
    return [Step(min(limit, prompt - at), min(prompt, at + limit)) for at in range(0, prompt, limit)]
