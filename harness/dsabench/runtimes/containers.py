"""Containers of a deployment, removed by the id that the engine wrote down: ending the client does not end them all."""

from __future__ import annotations

import asyncio
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from dsabench.errors import TrialFault
from dsabench.runtimes.leaving import CheckedAfter

_ENGINES = ("docker", "podman")
_REMOVE_TIMEOUT_S = 60.0


def engine_of(argv: Sequence[str]) -> str | None:
    """The engine whose `run` starts the command on this machine; None for another command."""
    return argv[0] if len(argv) > 1 and argv[0] in _ENGINES and argv[1] == "run" else None


def with_id_file(argv: Sequence[str], file: Path) -> tuple[str, ...]:
    """The same command, told to write the container's id."""
    return (*argv[:2], "--cidfile", str(file), *argv[2:])


@asynccontextmanager
async def removed_after(engine: str, file: Path, env: dict[str, str] | None = None) -> AsyncIterator[None]:
    """On leaving, `ENGINE rm -f ID`, where a container was made. Enter it before the process that makes it.

    Raises:
        TrialFault: kind not_gone: the engine could not remove it. As a note where another error is under way.

    """
    file.unlink(missing_ok=True)  # engines refuse to write over one
    async with CheckedAfter(lambda: _remove(engine, file, env)):
        yield


async def _remove(engine: str, file: Path, env: dict[str, str] | None) -> TrialFault | None:
    try:
        container = file.read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return None
    if not container.isalnum():
        return None
    try:
        process = await asyncio.create_subprocess_exec(
            engine, "rm", "-f", container, stdin=DEVNULL, stdout=DEVNULL, stderr=PIPE, env=env
        )
        async with asyncio.timeout(_REMOVE_TIMEOUT_S):
            _, said = await process.communicate()
    except (OSError, TimeoutError) as error:
        return TrialFault("not_gone", f"container {container[:12]}: {engine} rm: {error or 'no answer'}", stage="stop")
    words = " ".join(said.decode(errors="replace").split())
    if process.returncode == 0 or "no such container" in words.lower():
        file.unlink(missing_ok=True)
        return None
    return TrialFault("not_gone", f"container {container[:12]} is still there: {words[:200]}", stage="stop")
