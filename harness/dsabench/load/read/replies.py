"""Read every recorded answer and make one sample per request."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Protocol

from dsabench.errors import printable
from dsabench.http import Read
from dsabench.load.read.fast_generate import read_streams
from dsabench.load.read.generate import read_generate
from dsabench.load.read.json_stream import StreamReply
from dsabench.load.read.openai import read_chat, read_completions
from dsabench.load.read.recording import Recording
from dsabench.model.sample import EndpointName, Prompt, RequestSample


class ReplyReader(Protocol):
    """Reads one recorded stream."""

    def __call__(
        self, reads: Iterable[Read], start_s: float, *, asked: int | None = None, keep_text: bool = False
    ) -> StreamReply:
        """Frames with times relative to `start_s`; `keep_text` fills `StreamReply.spoken`. Never raises.

        `asked` are the tokens that were asked for. A count that cannot be true is an error `garbage: …`.
        """


READERS: Mapping[EndpointName, ReplyReader] = {
    "generate": read_generate,
    "completions": read_completions,
    "chat": read_chat,
}
"""Endpoint → its reader."""


def read_replies(
    recording: Recording, endpoint: EndpointName, asked: Sequence[int | None], *, keep_text: bool = False
) -> Iterator[StreamReply]:
    """Every request's reply in order, times in seconds after the start. `asked`: tokens; None where nobody knows."""
    if endpoint == "generate":
        yield from read_streams(recording, asked, keep_text=keep_text)
        return
    read = READERS[endpoint]
    for index in range(len(recording)):
        yield read(recording.reads(index), 0.0, asked=asked[index], keep_text=keep_text)


def to_samples(prompts: Sequence[Prompt], answers: Iterable[StreamReply], recording: Recording) -> list[RequestSample]:
    """What was seen of each request: the recording's times, the reply's frames."""
    times = (recording.scheduled_s.tolist(), recording.sent_s.tolist(), recording.done_s.tolist())
    broken = recording.broken()
    return [
        RequestSample(
            index=index,
            scheduled_s=scheduled_s,
            sent_s=sent_s,
            done_s=done_s,
            input_len=reply.input_tokens if prompt.continues and reply.input_tokens else prompt.input_len,
            output_len_asked=prompt.output_len,
            frames=reply.frames,
            input_tokens=reply.input_tokens,
            cached_tokens=reply.cached_tokens,
            accept_length=reply.accept_length,
            dp_rank=reply.dp_rank,
            finish_reason=reply.finish_reason,
            count_source=reply.count_source,
            error=_said(reply, recording.error(index) if index in broken else None),
        )
        for index, (prompt, reply, scheduled_s, sent_s, done_s) in enumerate(zip(prompts, answers, *times, strict=True))
    ]


def _said(reply: StreamReply, error: str | None) -> str | None:
    """The server's own words say more than the broken connection that followed them."""
    told = reply.error is not None and reply.error.startswith(("server:", "abort:"))
    http = error is not None and error.startswith("http ")
    said = reply.error if (told and not http) or error is None else error
    return said if said is None else printable(said)
