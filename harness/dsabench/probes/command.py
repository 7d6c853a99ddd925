"""Asking a command-line tool that may be missing, broken or stuck."""

from __future__ import annotations

import asyncio
from asyncio.subprocess import DEVNULL, PIPE
from contextlib import suppress


async def output_of(*argv: str, timeout_s: float = 10.0) -> str | None:
    """Its stdout, or None where it is not installed, fails, or does not end in time."""
    try:
        process = await asyncio.create_subprocess_exec(*argv, stdin=DEVNULL, stdout=PIPE, stderr=DEVNULL)
    except OSError:
        return None
    try:
        async with asyncio.timeout(timeout_s):
            text, _ = await process.communicate()
    except TimeoutError:
        return None
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    return text.decode(errors="replace") if process.returncode == 0 else None
