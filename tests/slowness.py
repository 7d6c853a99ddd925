"""How slow this machine is now, for tests that say how soon something has to be over."""

from __future__ import annotations

import subprocess
import sys
import time

_IDLE_S = 0.05
"""What the work below takes on an idle core where the limits were set."""


def slowness() -> float:
    """How many times longer than there a start of an interpreter takes here and now; 1.0 on what is faster."""
    began = time.monotonic()
    subprocess.run([sys.executable, "-c", "import asyncio"], check=True)
    return max(1.0, (time.monotonic() - began) / _IDLE_S)
