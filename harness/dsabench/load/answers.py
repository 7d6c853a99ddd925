"""A recording → the reply to each request, and its sample."""

from __future__ import annotations

from collections.abc import Iterator

from dsabench.load.readers import READERS, Reply
from dsabench.load.readers.stream import printable
from dsabench.load.recording import Recording
from dsabench.load.streams import read_streams
from dsabench.load.target import EndpointName
from dsabench.model.sample import Prompt, RequestSample


def replies(recording: Recording, endpoint: EndpointName, *, keep_text: bool = False) -> Iterator[Reply]:
    """Every request's reply in order, times in seconds after the start."""
    if endpoint == "generate" and not keep_text:
        yield from read_streams(recording)
        return
    read = READERS[endpoint]
    for index in range(len(recording)):
        yield read(recording.reads(index), 0.0, keep_text=keep_text)


def sample_of(index: int, prompt: Prompt, reply: Reply, recording: Recording) -> RequestSample:
    """What was seen of one request: the recording's times, the reply's frames."""
    error = recording.error(index)
    # The server's own words say more than the broken connection that followed them.
    told = reply.error is not None and reply.error.startswith(("server:", "abort:"))
    http = error is not None and error.startswith("http ")
    said = reply.error if (told and not http) or error is None else error
    return RequestSample(
        index=index,
        scheduled_s=float(recording.scheduled_s[index]),
        sent_s=float(recording.sent_s[index]),
        done_s=float(recording.done_s[index]),
        input_len=prompt.input_len,
        output_len_asked=prompt.output_len,
        frames=reply.frames,
        input_tokens=reply.input_tokens,
        cached_tokens=reply.cached_tokens,
        accept_length=reply.accept_length,
        dp_rank=reply.dp_rank,
        finish_reason=reply.finish_reason,
        count_source=reply.count_source,
        error=said if said is None else printable(said),
    )
