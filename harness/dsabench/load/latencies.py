"""Latencies of requests, with bench_serving's formulas (sglang 0.5.23 benchmark/serving.py)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dsabench.model.sample import RequestSample


def latencies_ms(samples: Sequence[RequestSample]) -> dict[str, list[float]]:
    """Name → values of all requests given, which must have ended well; milliseconds.

    - ttft: first token − sent. e2e: last byte − sent, where `[DONE]` is the last.
    - tpot: (e2e − ttft) / (tokens − 1), only of requests with more than one token.
    - itl: a frame of k tokens gives k gaps of a k-th of its distance to the frame before; the first frame gives none.
    - …_from_schedule: counted from when the request was due, so that waiting for the server to take it counts.
    - queue_wait: sent − scheduled.
    """
    values: dict[str, list[float]] = {name: [] for name in NAMES}
    for sample in samples:
        first_s, tokens = sample.frames[0].at_s, sample.output_tokens
        values["ttft_ms"].append((first_s - sample.sent_s) * 1e3)
        values["e2e_ms"].append((sample.done_s - sample.sent_s) * 1e3)
        values["ttft_from_schedule_ms"].append((first_s - sample.scheduled_s) * 1e3)
        values["e2e_from_schedule_ms"].append((sample.done_s - sample.scheduled_s) * 1e3)
        values["queue_wait_ms"].append((sample.sent_s - sample.scheduled_s) * 1e3)
        values["itl_ms"].extend(_gaps_ms(sample))
        if tokens > 1:
            values["tpot_ms"].append((sample.done_s - first_s) * 1e3 / (tokens - 1))
    return values


NAMES = ("ttft_ms", "tpot_ms", "itl_ms", "e2e_ms", "ttft_from_schedule_ms", "e2e_from_schedule_ms", "queue_wait_ms")


def _gaps_ms(sample: RequestSample) -> Iterator[float]:
    for before, frame in zip(sample.frames, sample.frames[1:], strict=False):
        gap_ms = (frame.at_s - before.at_s) * 1e3 / frame.tokens
        yield from (gap_ms for _ in range(frame.tokens))
