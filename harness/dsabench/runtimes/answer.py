"""The body of an answer that is to be a few words or numbers, whatever the server makes of it."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import aiohttp

_BYTES_MAX = 8 << 20


class EndlessAnswerError(aiohttp.ClientError):
    """More came than an answer of its kind can have."""


async def text_of(response: aiohttp.ClientResponse) -> str:
    """The whole body as text; what is no UTF-8 is replaced.

    Raises:
        EndlessAnswerError: more than 8 MiB.

    """
    return b"".join([part async for part in parts_of(response)]).decode(errors="replace")


async def parts_of(response: aiohttp.ClientResponse) -> AsyncGenerator[bytes]:
    """The body as it comes, up to 8 MiB: an endless one must not fill the memory.

    Raises:
        EndlessAnswerError: more than that.

    """
    size = 0
    async for part in response.content.iter_any():
        size += len(part)
        if size > _BYTES_MAX:
            raise EndlessAnswerError(f"more than {_BYTES_MAX >> 20} MiB of answer")
        yield part
