"""Where prefill servers hand their parcels to decode servers: a TCP port on which a room's number is asked for.

A router sends each request to both servers with the same room (sglang's bootstrap_host, _port and _room). The decode
server connects to the prefill server's bootstrap port, sends the room as 8 bytes, and gets the parcel's length and the
parcel as soon as it is ready; length 0 says that there will be none. A broken connection says that the server is gone.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from dsabench.errors import InputError
from dsabench.reference.server.asked import Meeting

_NUMBER_BYTES = 8
_KEPT_S = 120.0
"""For a decode server to come for a parcel, or for the request to come whose parcel it asks for."""


class NotHandedOverError(Exception):
    """There is no parcel to be had; says why in one line."""


class Counter:
    """The prefill server's side: parcels by room."""

    def __init__(self) -> None:
        self._parcels: dict[int, asyncio.Future[bytes | None]] = {}

    @asynccontextmanager
    async def open(self, host: str, port: int) -> AsyncIterator[None]:
        """Listen while the context is open.

        Raises:
            InputError: the port is taken.

        """
        try:
            server = await asyncio.start_server(self._hand, host, port)
        except OSError as error:
            raise InputError(f"--disaggregation-bootstrap-port {port}: {error.strerror}") from error
        async with server:
            yield

    def put(self, room: int, parcel: bytes | None) -> None:
        """Ready to be fetched; None where the request came to nothing."""
        waiting = self._of(room)
        if not waiting.done():
            waiting.set_result(parcel)

    def _of(self, room: int) -> asyncio.Future[bytes | None]:
        loop = asyncio.get_running_loop()
        if room not in self._parcels:
            self._parcels[room] = loop.create_future()
            loop.call_later(_KEPT_S, self._parcels.pop, room, None)
        return self._parcels[room]

    async def _hand(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError, TimeoutError):
            room = int.from_bytes(await reader.readexactly(_NUMBER_BYTES), "big")
            async with asyncio.timeout(_KEPT_S):
                parcel = await asyncio.shield(self._of(room)) or b""
            writer.write(len(parcel).to_bytes(_NUMBER_BYTES, "big") + parcel)
            await writer.drain()
            self._parcels.pop(room, None)
        writer.close()


async def fetch(meeting: Meeting) -> bytes:
    """The decode server's side.

    Raises:
        NotHandedOverError: the prefill server is not there, went away, or has nothing for this room.

    """
    place = f"{meeting.host}:{meeting.port}"
    try:
        reader, writer = await asyncio.open_connection(meeting.host, meeting.port)
        try:
            writer.write(meeting.room.to_bytes(_NUMBER_BYTES, "big"))
            length = int.from_bytes(await reader.readexactly(_NUMBER_BYTES), "big")
            parcel = await reader.readexactly(length)
        finally:
            writer.close()
    except (OSError, asyncio.IncompleteReadError) as error:
        raise NotHandedOverError(f"the prefill server at {place} is gone: {error}") from error
    if not parcel:
        raise NotHandedOverError(f"the prefill server at {place} has no KV for this request")
    return parcel
