"""A server that writes exactly the bytes it is given, in the pieces it is given, and then does what it is told."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from raw_server import RawServer

Then = Literal["keep", "close", "reset", "hang", "half"]


@dataclass(frozen=True)
class Script:
    """What follows a request."""

    pieces: Sequence[bytes]
    then: Then = "keep"
    pause_s: float = 0.0


class WireServer(RawServer):
    """Answers the requests with the scripts in turn, over again from the first."""

    def __init__(self, *scripts: Script) -> None:
        super().__init__()
        self._scripts = scripts
        self.requests: list[bytes] = []

    @property
    def url(self) -> str:
        """Where requests go."""
        return f"{self.base_url}/generate"

    async def answer(self, head: bytes, body: bytes, writer: asyncio.StreamWriter) -> bool:
        """Follow the script."""
        script = self._scripts[len(self.requests) % len(self._scripts)]
        self.requests.append(head + body)
        sock = writer.get_extra_info("socket")
        for piece in script.pieces:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(script.pause_s)
        match script.then:
            case "reset":
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                writer.transport.abort()
            case "half":
                writer.write_eof()
                await asyncio.sleep(30.0)
            case "hang":
                await asyncio.sleep(30.0)
        return script.then == "keep"
