"""A /generate server that answers on a known schedule, and misbehaves on request. Real sockets, raw HTTP/1.1.

`python tests/paced_server.py --ttft-ms 20 --gap-ms 20` prints its address and serves until it is stopped.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import socket
import struct
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

import psutil

from raw_server import RawServer

WORDS = ("sparse ", "latent ", "é", "🙂 ", "top-k\\n", "index ")


@dataclass(frozen=True)
class Pace:
    """What an answer looks like. `fault` is what goes wrong in the requests numbered `faulty` (all if None)."""

    ttft_s: float = 0.02
    gap_s: float = 0.005
    tokens_per_frame: int = 1
    newline: bytes = b"\n"
    comments: bool = False  # a keep-alive before every frame
    repeats: bool = False  # every frame twice: the second brings no token
    pieces: int = 1  # writes per frame, cut anywhere
    meta: dict[str, Any] = field(default_factory=dict)
    slots: int | None = None  # requests served at a time; others wait
    together: int = 0  # no answer begins before so many requests are here
    fault: str | None = None
    faulty: frozenset[int] | None = None


@dataclass
class Served:
    """The server's truth about one request; times are of perf_counter, which all processes of a machine share."""

    received_s: float
    body: dict[str, Any]
    wrote_s: list[float] = field(default_factory=list)


class PacedServer(RawServer):
    """Open with `async with`; `served` and `most_in_flight` tell what happened."""

    def __init__(self, pace: Pace) -> None:
        super().__init__()
        self.pace = pace
        self.served: list[Served] = []
        self.in_flight = self.most_in_flight = 0
        self._slots = asyncio.Semaphore(pace.slots or 1_000_000)
        self._all_here = asyncio.Event()

    async def answer(self, head: bytes, body: bytes, writer: asyncio.StreamWriter) -> bool:
        """Stream an answer at its pace, or misbehave."""
        served = Served(perf_counter(), json.loads(body))
        number = len(self.served)
        self.served.append(served)
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        fault = self.pace.fault if self.pace.faulty is None or number in self.pace.faulty else None
        if self.in_flight >= self.pace.together:
            self._all_here.set()
        try:
            await self._all_here.wait()
            async with self._slots:
                await self._answer(writer, served, fault)
        finally:
            self.in_flight -= 1
        return True

    async def _answer(self, writer: asyncio.StreamWriter, served: Served, fault: str | None) -> None:
        if fault == "http503":
            body = b'{"error": {"message": "busy"}}'
            writer.write(b"HTTP/1.1 503 Busy\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
            return
        if fault == "close":
            _reset(writer)
        if fault == "nonsense":
            writer.write(b"HELLO\r\n\r\n")
            await asyncio.sleep(0.05)
            _reset(writer)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        due_s = perf_counter() + self.pace.ttft_s
        for count, frame in enumerate(frames(self.pace, served.body)):
            if fault is not None and count == 3:
                await _misbehave(writer, fault)
                if fault in {"cut", "cut_in_frame", "error", "garbage"}:
                    break
            if (wait_s := due_s - perf_counter()) > 0:
                await asyncio.sleep(wait_s)
            served.wrote_s.append(perf_counter())
            for piece in cut(frame, self.pace.pieces):
                _chunk(writer, piece)
                if self.pace.pieces > 1:
                    await asyncio.sleep(0)
            due_s += self.pace.gap_s
        else:
            _chunk(writer, b"data: [DONE]" + self.pace.newline * 2)
        writer.write(b"0\r\n\r\n")
        await writer.drain()


def connections_to(url: str) -> list[object]:
    """This process's established connections to the server there."""
    port = int(url.rpartition(":")[2])
    mine = psutil.Process().net_connections("tcp")
    return [tcp for tcp in mine if tcp.raddr and tcp.raddr.port == port and tcp.status == psutil.CONN_ESTABLISHED]


def frames(pace: Pace, body: dict[str, Any]) -> Iterator[bytes]:
    """The answer's frames, as sglang writes them: cumulative text and counts."""
    asked = body["sampling_params"]["max_new_tokens"]
    prompt_tokens = len(body["input_ids"]) if "input_ids" in body else len(body["text"].encode())
    text = ""
    for tokens in [*range(pace.tokens_per_frame, asked, pace.tokens_per_frame), asked]:
        text += WORDS[tokens % len(WORDS)]
        meta = {
            "id": "0",
            "finish_reason": {"type": "length", "length": asked} if tokens == asked else None,
            "prompt_tokens": prompt_tokens,
            "completion_tokens": tokens,
            "cached_tokens": 0,
            **pace.meta,
        }
        data = json.dumps({"text": text, "meta_info": meta}, ensure_ascii=False).encode()
        comment = b": keep-alive" + pace.newline * 2 if pace.comments else b""
        yield (comment + b"data: " + data + pace.newline * 2) * (2 if pace.repeats else 1)


def cut(data: bytes, pieces: int) -> Iterator[bytes]:
    """Nearly equal pieces; never an empty one, which would end a chunked body."""
    size = -(-len(data) // pieces)
    for start in range(0, len(data), size):
        yield data[start : start + size]


def _chunk(writer: asyncio.StreamWriter, data: bytes) -> None:
    writer.write(b"%x\r\n%s\r\n" % (len(data), data))


async def _misbehave(writer: asyncio.StreamWriter, fault: str) -> None:
    if fault == "reset":
        _reset(writer)
    elif fault == "stall":
        await asyncio.sleep(30.0)
    elif fault == "pause":
        await asyncio.sleep(0.6)
    elif fault == "garbage":
        _chunk(writer, b"data: {not json}\n\n")
    elif fault == "error":
        _chunk(writer, b'data: {"error": {"message": "KV cache is full"}}\n\n')
    elif fault == "cut_in_frame":
        _chunk(writer, b'data: {"text": "spa')


def _reset(writer: asyncio.StreamWriter) -> None:
    """Close with RST instead of FIN."""
    sock = writer.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
    raise ConnectionResetError


async def _serve(pace: Pace) -> None:
    async with PacedServer(pace) as server:
        print(server.base_url, flush=True)
        await asyncio.get_running_loop().create_future()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ttft-ms", type=float, default=20.0)
    parser.add_argument("--gap-ms", type=float, default=20.0)
    options = parser.parse_args()
    with suppress(KeyboardInterrupt):
        asyncio.run(_serve(Pace(ttft_s=options.ttft_ms / 1e3, gap_s=options.gap_ms / 1e3)))
