"""Samples and runs made by hand."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from dsabench.load.judge.validity import ClientHealth
from dsabench.load.load_test import LoadRun
from dsabench.model.sample import Frames, RequestSample

CALM = ClientHealth(0.5, 0.1, 0.2, 1.0, 2.0, 0.3)


def sample(index: int = 0, sent_s: float = 0.0, last_s: float = 1.0, tokens: int = 10, **changes: Any) -> RequestSample:
    """`tokens` frames of one token, the last `last_s` after sending; the first and all gaps take equally long."""
    gap_s = last_s / tokens
    fields: dict[str, Any] = {
        "index": index,
        "scheduled_s": sent_s,
        "sent_s": sent_s,
        "done_s": sent_s + last_s,
        "input_len": 10,
        "output_len_asked": tokens,
        "frames": Frames.of((sent_s + gap_s * (i + 1), 1) for i in range(tokens)),
    }
    return RequestSample(**fields | changes)


def closed_loop(slots: int, rounds: int, last_s: float = 1.0, **changes: Any) -> list[RequestSample]:
    """`slots` requests at a time, each as long as all others, the slots out of step by a part of a request."""
    return [
        sample(r * slots + slot, r * last_s + slot * last_s / slots, last_s, **changes)
        for r in range(rounds)
        for slot in range(slots)
    ]


def run_of(samples: list[RequestSample], duration_s: float) -> LoadRun:
    return LoadRun(tuple(samples), datetime.now(UTC), duration_s, CALM)
