"""Starts the paced mock server, compiled on the fly, and takes its truth when it stops."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).with_name("paced_mock.c")


@dataclass
class Mock:
    """A running server; `truth` is filled when its context ends."""

    port: int
    truth: dict[str, Any] = field(default_factory=dict)

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


def compiled(folder: Path) -> Path:
    """Build it."""
    program = folder / "paced_mock"
    subprocess.run(["cc", "-O2", "-o", str(program), str(SOURCE)], check=True)
    return program


@contextmanager
def serving(
    program: Path, *, cores: Sequence[int | None] = (None,), gap_us: int = 20_000, seed: int = 1, hold: int = 0
) -> Iterator[Mock]:
    """One process per entry of `cores`, all on one port; pinned where a core is named."""
    processes: list[subprocess.Popen[str]] = []
    mock = Mock(0)
    try:
        for number, core in enumerate(cores):
            argv = [str(program), str(mock.port), str(gap_us), str(seed + number), str(hold)]
            process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            if core is not None:
                os.sched_setaffinity(process.pid, {core})
            processes.append(process)
            assert process.stdout is not None
            mock.port = int(process.stdout.readline().split()[1])
        yield mock
    finally:
        told = []
        for process in processes:
            process.send_signal(signal.SIGTERM)
            told.append(json.loads(process.communicate()[0]))
        mock.truth.update(_together(told))


def _together(told: list[dict[str, Any]]) -> dict[str, Any]:
    if len(told) == 1:
        return told[0]
    whole = {name: sum(one[name] for one in told) for name in ("requests", "ended", "frames", "bytes")}
    weights = [one["requests"] for one in told]
    mean = sum(one["ttft_mean_ms"] * w for one, w in zip(told, weights, strict=True)) / max(sum(weights), 1)
    return {**whole, "ttft_mean_ms": mean, "late_max_ms": max(one["late_max_ms"] for one in told)}
