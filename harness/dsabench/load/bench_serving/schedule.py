"""Latencies counted from when a request was due, so that waiting for a slot counts (no coordinated omission).

bench_serving's clock starts when a request got its slot. In a closed loop a request is due when its slot is free.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from dsabench.load.bench_serving.answers import Answers
from dsabench.load.bench_serving.steady import Tail, tail_lines, tail_of
from dsabench.model.sample import RequestSample

_WIDTH = 50


def from_schedule(answers: Answers, samples: Sequence[RequestSample]) -> dict[str, Tail]:
    """`queue_wait` from due to sent, `ttft` and `e2e_latency` from due; of requests that ended well."""
    due_s = np.fromiter((sample.scheduled_s for sample in samples), np.float64, len(samples))[answers.ok]
    wait_s = answers.start_s[answers.ok] - due_s
    return {
        "queue_wait": tail_of(wait_s),
        "ttft": tail_of(answers.ttft_s[answers.ok] + wait_s),
        "e2e_latency": tail_of(answers.latency_s[answers.ok] + wait_s),
    }


def schedule_lines(latencies: Mapping[str, Tail]) -> Iterator[str]:
    """A block of its own."""
    yield f"{' Counted From Schedule ':=^{_WIDTH}}"
    yield from tail_lines(latencies)
