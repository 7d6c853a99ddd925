"""A recording → the reply to each request."""

from __future__ import annotations

from collections.abc import Iterator

from dsabench.load.readers import READERS, Reply
from dsabench.load.recording import Recording
from dsabench.load.target import EndpointName


def replies(recording: Recording, endpoint: EndpointName, *, keep_text: bool = False) -> Iterator[Reply]:
    """Every request's reply in order, times in seconds after the start."""
    read = READERS[endpoint]
    for index in range(len(recording)):
        yield read(recording.reads(index), 0.0, keep_text=keep_text)
