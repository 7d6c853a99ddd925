"""What the requests themselves show that a reader of their numbers must know. Imports no pydantic."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from dsabench.model.sample import RequestSample

CACHED_SHARE_WARN = 0.01
"""Share of the prompt tokens that a prefix cache may answer before it is said beside the numbers."""
SHARING_DATASETS = frozenset({"generated-shared-prefix", "mooncake", "openai", "custom"})
"""Datasets whose prompts share prefixes on purpose, or may."""


def request_cautions(samples: Sequence[RequestSample], dataset: str, *, in_sessions: bool = False) -> Iterator[str]:
    """One line each: failures, short answers, other prompt lengths, how tokens were counted, a cached prefix.

    The turns of a session begin with those before them, whatever their dataset.
    """
    completed = [sample for sample in samples if sample.error is None]
    yield from _of_requests(samples, completed)
    yield from _of_counting(completed)
    if not in_sessions and dataset not in SHARING_DATASETS:
        yield from _of_cache(completed)


def _of_requests(samples: Sequence[RequestSample], completed: Sequence[RequestSample]) -> Iterator[str]:
    errors = Counter(sample.error for sample in samples if sample.error is not None)
    if errors:
        [(commonest, _)] = errors.most_common(1)
        yield f"{errors.total()} of {len(samples)} requests failed, most with {commonest}"
    short = sum(sample.output_tokens < sample.output_len_asked for sample in completed)
    if short:
        yield f"{short} of {len(completed)} answers have fewer tokens than were asked for"
    other = sum(sample.input_tokens not in {None, sample.input_len} for sample in completed)
    if other:
        yield f"the server counts other prompt lengths than were sent in {other} of {len(completed)} requests"


def _of_counting(completed: Sequence[RequestSample]) -> Iterator[str]:
    deltas = sum(sample.count_source == "deltas" for sample in completed)
    if deltas:
        yield (
            f"the server sent no token counts for {deltas} of {len(completed)} answers: each event with text counts as "
            "one token, which is too few where a step brings several"
        )
    totals = sum(sample.count_source == "total" for sample in completed)
    if totals:
        yield (
            f"the server told the tokens of {totals} of {len(completed)} answers at their end only: they are spread "
            "over the events, and the gaps between tokens (ITL) inside an event are an estimate"
        )


def _of_cache(completed: Sequence[RequestSample]) -> Iterator[str]:
    hit = sum(bool(sample.cached_tokens) for sample in completed)
    cached = sum(sample.cached_tokens or 0 for sample in completed)
    share = cached / (sum(sample.input_len for sample in completed) or 1)
    if share > CACHED_SHARE_WARN:
        yield f"the prefix cache answered {share:.0%} of the prompt tokens: prefill is faster than the workload asks"
        yield (
            f"{hit} of {len(completed)} requests found a cached prefix, which this dataset does not share: flush the "
            "cache before the run (dsabench bench: --flush-cache), or start the server with the prefix cache off"
        )
