"""A deployment of several processes in the foreground: all up, until one ends or the user says so."""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

from dsabench.errors import TrialFault
from dsabench.model.runtime import RuntimeSpec
from dsabench.runtimes.launch import Launch
from dsabench.runtimes.protocol import Place
from dsabench.runtimes.sglang.deployment import Planner, deployed
from dsabench.signals import run_loop, stop_at_any_signal


def drive(spec: RuntimeSpec, planner: Planner, launch: Launch, logs: Path | None) -> int:
    """Start it, say where it answers, and take all of it down at Ctrl-C (130), or when a part ends.

    Logs that no folder was named for are gone with it, unless a part failed.

    Raises:
        TrialFault: a part failed or ended by itself; the others are gone by then.

    """
    stop_at_any_signal()
    try:
        run_loop(_serve(spec, planner, launch, logs))
    except KeyboardInterrupt:
        return 130
    return 0


async def _serve(spec: RuntimeSpec, planner: Planner, launch: Launch, logs: Path | None) -> None:
    folder = Path(tempfile.mkdtemp(prefix="dsabench-launch-")) if logs is None else logs
    passing = logs is None
    _say(f"logs: {folder}")
    try:
        async with deployed(spec, planner, launch, Place(folder=folder, on_progress=_say)) as server:
            print(server.base_url, flush=True)
            _say(f"ready after {server.boot_s:.1f} s; Ctrl-C ends all {len(server.parts)} processes")
            await server.died()
    except TrialFault:
        passing = False  # a fault shows only the end of its log
        raise
    finally:
        if passing:
            shutil.rmtree(folder, ignore_errors=True)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
