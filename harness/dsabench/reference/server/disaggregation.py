"""Where prefill servers hand a prompt's KV to decode servers: a TCP port on which a room's number is asked for.

A router sends each request to both servers with the same room (sglang's bootstrap_host, _port and _room). The decode
server connects to the prefill server's bootstrap port, sends the room as 8 bytes, and gets the transfer's length and the
transfer as soon as it is ready; length 0 says that there will be none. A broken connection says that the server is gone.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from dsabench.errors import InputError
from dsabench.reference.server.exchange import BootstrapRoom

_NUMBER_BYTES = 8
_KEPT_S = 120.0
"""For a decode server to come for a transfer, or for the request to come whose transfer it asks for."""


class KvTransferError(Exception):
    """There is no KV to be had; says why in one line."""


class KvTransferServer:
    """The prefill server's side: KV by room."""

    def __init__(self) -> None:
        self._transfers: dict[int, asyncio.Future[bytes | None]] = {}

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

    def put(self, room: int, transfer: bytes | None) -> None:
        """Ready to be fetched; None where the request came to nothing."""
        waiting = self._of(room)
        if not waiting.done():
            waiting.set_result(transfer)

    def _of(self, room: int) -> asyncio.Future[bytes | None]:
        loop = asyncio.get_running_loop()
        if room not in self._transfers:
            self._transfers[room] = loop.create_future()
            loop.call_later(_KEPT_S, self._transfers.pop, room, None)
        return self._transfers[room]

    async def _hand(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError, TimeoutError):
            room = int.from_bytes(await reader.readexactly(_NUMBER_BYTES), "big")
            async with asyncio.timeout(_KEPT_S):
                transfer = await asyncio.shield(self._of(room)) or b""
            writer.write(len(transfer).to_bytes(_NUMBER_BYTES, "big") + transfer)
            await writer.drain()
            self._transfers.pop(room, None)
        writer.close()


async def fetch_kv(meeting: BootstrapRoom) -> bytes:
    """The decode server's side.

    Raises:
        KvTransferError: the prefill server is not there, went away, or has nothing for this room.

    """
    place = f"{meeting.host}:{meeting.port}"
    try:
        reader, writer = await asyncio.open_connection(meeting.host, meeting.port)
        try:
            writer.write(meeting.room.to_bytes(_NUMBER_BYTES, "big"))
            length = int.from_bytes(await reader.readexactly(_NUMBER_BYTES), "big")
            transfer = await reader.readexactly(length)
        finally:
            writer.close()
    except (OSError, asyncio.IncompleteReadError) as error:
        raise KvTransferError(f"the prefill server at {place} is gone: {error}") from error
    if not transfer:
        raise KvTransferError(f"the prefill server at {place} has no KV for this request")
    return transfer
