"""10 MB/s of server-sent events over 4,096 streams: does memory stay flat?

    python tests/load_benchmark/soak.py --minutes 10 --output record.json

Answers of 1,000 tokens, each frame of which repeats the last few tokens, so that all frames are about equally large.
The resident memory of the whole client tree is read from /proc once a second, during the load and the reading after it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import threading
import time
from math import ceil
from pathlib import Path
from typing import Any

import orjson
import psutil

sys.path.insert(0, str(Path(__file__).parent))
from paced import compiled, serving

from dsabench.load.drive import send_plan
from dsabench.load.judge.validity import TypicalTimes, judge_client
from dsabench.load.plan import ClosedLoop, LoadPlan
from dsabench.load.read.replies import read_replies


class Memory(threading.Thread):
    """Resident MB of this process and its children, once a second."""

    def __init__(self, without: set[int]) -> None:
        super().__init__(daemon=True)
        self._without = without
        self.rss_mb: list[float] = []

    def run(self) -> None:
        me = psutil.Process()
        while True:
            tree = [me, *(child for child in me.children(recursive=True) if child.pid not in self._without)]
            total = 0
            for process in tree:
                try:
                    total += process.memory_info().rss
                except psutil.NoSuchProcess:
                    continue
            self.rss_mb.append(total / 1e6)
            time.sleep(1.0)


def main() -> None:
    options = _options()
    frames_per_s = options.mb_per_s * 1e6 / options.frame_bytes
    gap_us = round(options.streams / frames_per_s * 1e6)
    rounds = ceil(options.minutes * 60e6 / (options.tokens * gap_us))
    options.tokens = ceil(options.minutes * 60e6 / (rounds * gap_us))
    with tempfile.TemporaryDirectory() as folder, serving(compiled(Path(folder)), gap_us=gap_us, hold=20) as server:
        servers = {child.pid for child in psutil.Process().children(recursive=True)}
        memory = Memory(servers)
        memory.start()
        record = asyncio.run(_run(server.base_url, options, rounds, memory))
    record |= {
        "gap_ms": gap_us / 1e3, "mb_per_s": round(server.truth["bytes"] / record["seconds"] / 1e6, 2),
        "tokens_off": record["tokens"] - server.truth["frames"], "rss_mb_every_10_s": [round(x) for x in memory.rss_mb[::10]],
    }  # fmt: skip
    print(json.dumps(record))
    if options.output:
        Path(options.output).write_text(json.dumps({"conditions": vars(options), **record}, indent=1) + "\n")


async def _run(base_url: str, options: argparse.Namespace, rounds: int, memory: Memory) -> dict[str, Any]:
    body = orjson.dumps({"input_ids": [1] * 32, "sampling_params": {"max_new_tokens": options.tokens}, "stream": True})
    plan = LoadPlan(
        f"{base_url}/generate",
        [body] * (options.streams * rounds),
        ClosedLoop(options.streams),
        workers=options.workers,
    )
    driven = await send_plan(plan)
    loaded = len(memory.rss_mb)
    health = judge_client(driven.vitals, driven.read_counts, driven.recording.late_s, TypicalTimes())
    tokens = errors = 0
    for reply in read_replies(driven.recording, "generate", [None] * len(driven.recording)):
        tokens += int(reply.frames.tokens.sum())
        errors += reply.error is not None
    driven.recording.close()
    await asyncio.sleep(1.1)
    load_mb = memory.rss_mb[:loaded]
    return {
        "seconds": float(driven.recording.done_s.max()), "requests": len(plan.bodies), "tokens": tokens, "errors": errors,
        "workers": len(driven.vitals), "saturated": health.saturated, "lag_p99_ms": health.lag_p99_ms,
        "cpu_share": health.cpu_share, "rss_mb_max_load": max(load_mb), "rss_mb_max_reading": max(memory.rss_mb[loaded - 1 :]),
        "rss_mb_third": max(load_mb[: len(load_mb) // 3 or 1]), "rss_mb_last_third": max(load_mb[-len(load_mb) // 3 :]),
    }  # fmt: skip


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--streams", type=int, default=4096)
    parser.add_argument("--mb-per-s", type=float, default=10.0)
    parser.add_argument("--tokens", type=int, default=1000, help="per answer, at most")
    parser.add_argument("--frame-bytes", type=int, default=470, help="of a frame that repeats 20 tokens")
    parser.add_argument("--workers", type=int)
    parser.add_argument("--output")
    return parser.parse_args()


if __name__ == "__main__":
    main()
