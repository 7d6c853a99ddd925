"""Latencies of requests, with bench_serving's formulas (sglang 0.5.23 benchmark/serving.py)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dsabench.model.sample import Frames, RequestSample, Times


def latencies_ms(samples: Sequence[RequestSample]) -> dict[str, Times]:
    """Name → values of all requests given, which must have ended well; milliseconds.

    - ttft: first token − sent. e2e: last byte − sent, where `[DONE]` is the last.
    - tpot: (e2e − ttft) / (tokens − 1), only of requests with more than one token.
    - itl: a frame of k tokens gives k gaps of a k-th of its distance to the frame before; the first frame gives none.
    - …_from_schedule: counted from when the request was due, so that waiting for the server to take it counts.
    - queue_wait: sent − scheduled.
    """
    scheduled_s = np.array([sample.scheduled_s for sample in samples], np.float64)
    sent_s = np.array([sample.sent_s for sample in samples], np.float64)
    first_s = np.array([sample.frames.at_s[0] for sample in samples], np.float64)
    done_s = np.array([sample.done_s for sample in samples], np.float64)
    tokens = np.array([sample.output_tokens for sample in samples], np.int64)
    several = tokens > 1
    return {
        "ttft_ms": (first_s - sent_s) * 1e3,
        "tpot_ms": (done_s - first_s)[several] * 1e3 / (tokens[several] - 1),
        "itl_ms": np.concatenate([gaps_s(sample.frames) for sample in samples] or [np.empty(0)]) * 1e3,
        "e2e_ms": (done_s - sent_s) * 1e3,
        "ttft_from_schedule_ms": (first_s - scheduled_s) * 1e3,
        "e2e_from_schedule_ms": (done_s - scheduled_s) * 1e3,
        "queue_wait_ms": (sent_s - scheduled_s) * 1e3,
    }


def gaps_s(frames: Frames) -> Times:
    """Gaps between consecutive tokens, seconds; as many as there are tokens after the first frame."""
    later = frames.tokens[1:]
    return np.repeat(np.diff(frames.at_s) / later, later)
