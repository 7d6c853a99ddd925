"""`dsabench eval` in a process of its own."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path


async def start(*words: str, home: Path) -> asyncio.subprocess.Process:
    env = {**os.environ, "XDG_CACHE_HOME": str(home / "cache"), "OPENAI_API_KEY": "sk-secret-of-this-test"}
    command = (sys.executable, "-m", "dsabench", "eval", *words)
    return await asyncio.create_subprocess_exec(
        *command, cwd=home, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


async def dsabench(*words: str, home: Path) -> tuple[int | None, str, str]:
    """Exit code, stdout, stderr."""
    child = await start(*words, home=home)
    out, err = await child.communicate()
    return child.returncode, out.decode(), err.decode()
