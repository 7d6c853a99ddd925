"""From the samples of a run to its report."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from dsabench.load.bench_serving.answers import answers_in_columns
from dsabench.load.bench_serving.cache import report_cache
from dsabench.load.bench_serving.figures import compute_figures, compute_goodput, split_by_text
from dsabench.load.bench_serving.report import Order, Report
from dsabench.load.bench_serving.schedule import from_schedule
from dsabench.load.bench_serving.steady import Pattern, steady_of
from dsabench.load.read.json_stream import ReplyText
from dsabench.load.target import EndpointName
from dsabench.model.sample import RequestSample

CountTokens = Callable[[str], int]
"""Tokens of a text, without special ones."""

ENDPOINTS: Mapping[str, EndpointName] = {
    "sglang": "generate",
    "sglang-native": "generate",
    "sglang-oai": "completions",
    "sglang-oai-chat": "chat",
    "vllm": "completions",
    "vllm-chat": "chat",
    "lmdeploy": "completions",
    "lmdeploy-chat": "chat",
}
"""bench_serving's backends, less those for embeddings and for servers of other formats."""
_SPLIT_BY_TEXT = frozenset({"sglang-oai", "sglang-oai-chat"})


class Heard(NamedTuple):
    """What a run left, one row per request."""

    samples: Sequence[RequestSample]
    spoken: Sequence[ReplyText | None]
    duration_s: float
    server_info: object = None
    """What the server told of itself after it."""


class Wanted(NamedTuple):
    """What is computed only when it is asked for."""

    count_tokens: CountTokens | None
    """Without it (no tokenizer) the retokenised totals are 0, as in sglang's Rust client."""
    goodput_slos_ms: Mapping[str, float] | None = None
    cache_report: bool = False


def report_run(order: Order, heard: Heard, wanted: Wanted) -> Report:
    """Everything that is computed after a run."""
    samples, spoken, duration_s, server_info = heard
    count = wanted.count_tokens
    answers = answers_in_columns(samples, spoken, ENDPOINTS[order.backend])
    accept_length = accept_length_of(server_info) if "sglang" in order.backend else None
    gaps_s = None
    if count is not None and accept_length and order.backend in _SPLIT_BY_TEXT:
        ended = [words for sample, words in zip(samples, spoken, strict=True) if sample.error is None]
        gaps_s = split_by_text(answers, [count(piece.text) for words in ended if words for piece in words.pieces[1:]])
    texts = [words.text if words else "" for words in spoken]
    retokenized = [0 if count is None or not text else count(text) for text in texts]
    figures = compute_figures(
        answers,
        duration_s,
        input_lens=np.fromiter((sample.input_len for sample in samples), np.int64, len(samples)),
        retokenized=np.array(retokenized, np.int64),
        gaps_s=gaps_s,
    )
    return Report(
        order=order,
        duration_s=duration_s,
        samples=samples,
        spoken=spoken,
        answers=answers,
        figures=figures,
        goodput=compute_goodput(answers, wanted.goodput_slos_ms, duration_s) if wanted.goodput_slos_ms else None,
        cache=report_cache(samples, spoken) if wanted.cache_report else None,
        accept_length=accept_length,
        server_info=server_info,
        from_schedule=from_schedule(answers, samples),
        steady=steady_of(answers, samples, _pattern(order)),
    )


def _pattern(order: Order) -> Pattern:
    rate = None if math.isinf(order.request_rate) else order.request_rate
    return Pattern(order.dataset_name, "poisson", rate, order.max_concurrency)


def accept_length_of(server_info: object) -> float | None:
    """`avg_spec_accept_length` of the first (behind a router: the first decode server's) scheduler."""
    match server_info:
        case {"decode": [first, *_]}:
            return accept_length_of(first)
        case {"internal_states": [{"avg_spec_accept_length": int() | float() as accepted}, *_]}:
            return float(accepted)
    return None
