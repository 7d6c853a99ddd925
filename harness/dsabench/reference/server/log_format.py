"""The lines of the log, as SGLang's: `[2026-11-22 16:34:19 DP1] Decode batch, …`."""

from __future__ import annotations

LOG_TIME = "%Y-%m-%d %H:%M:%S"


def log_format(dp_rank: int | None = None) -> str:
    """Of the server, or of one of several data-parallel ranks."""
    return f"[%(asctime)s{'' if dp_rank is None else f' DP{dp_rank}'}] %(message)s"
