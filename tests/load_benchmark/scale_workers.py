"""Throughput of k worker processes against that of one, and whether every frame of a long run is counted.

    python tests/load_benchmark/scale_workers.py --servers 6 --workers 1 2 4 8 --output record.json

Servers answer faster than a worker can read, so what is measured is what the client takes. Each server has a core, the
client the others. A worker's load is the same in every run: `--streams` and `--per-stream` are per worker.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import orjson

sys.path.insert(0, str(Path(__file__).parent))
from paced import compiled, serving

from dsabench.load.drive import send_plan
from dsabench.load.plan import ClosedLoop, LoadPlan
from dsabench.load.read.replies import read_replies


def main() -> None:
    options = _options()
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, set(cores[options.servers :]))
    runs = []
    with tempfile.TemporaryDirectory() as folder:
        program = compiled(Path(folder))
        for number in range(options.rounds):
            for workers in options.workers:
                servers = cores[: options.servers]
                with serving(
                    program, cores=servers, gap_us=options.gap_us, seed=number + 1, hold=options.hold
                ) as server:
                    run = asyncio.run(_run(server.base_url, workers, options))
                run["frames_served"] = server.truth["frames"]
                run["tokens_off"] = run["tokens"] - server.truth["frames"]
                print(json.dumps(run), flush=True)
                runs.append(run)
    alone = np.median([run["frames_per_s"] for run in runs if run["workers"] == 1] or [np.nan])
    summary = []
    for workers in options.workers:
        per_s = float(np.median([run["frames_per_s"] for run in runs if run["workers"] == workers]))
        summary.append(
            {"workers": workers, "frames_per_s": round(per_s), "of_k_times_one": round(per_s / alone / workers, 3)}
        )
    record = {"cores": len(cores), "conditions": vars(options), "runs": runs, "summary": summary}
    print(json.dumps(summary, indent=1))
    if options.output:
        Path(options.output).write_text(json.dumps(record, indent=1) + "\n")


async def _run(base_url: str, workers: int, options: argparse.Namespace) -> dict[str, Any]:
    body = orjson.dumps({"input_ids": [1] * 32, "sampling_params": {"max_new_tokens": options.tokens}, "stream": True})
    count = workers * options.streams * options.per_stream
    plan = LoadPlan(f"{base_url}/generate", [body] * count, ClosedLoop(workers * options.streams), workers=workers)
    driven = await send_plan(plan)
    recording, begun_s = driven.recording, time.perf_counter()
    tokens = frames = failed = 0
    for reply in read_replies(recording, "generate", [None] * len(recording)):
        tokens += int(reply.frames.tokens.sum())
        frames += len(reply.frames)
        failed += reply.error is not None
    span_s = float(recording.done_s.max() - recording.sent_s.min())
    recording.close()
    return {
        "workers": workers, "requests": count, "failed": failed + len(recording.errors),
        "tokens": tokens, "frames": frames, "seconds": round(span_s, 3), "frames_per_s": round(frames / span_s),
        "cpu_us_per_frame": round(sum(own.cpu_s for own in driven.vitals) / frames * 1e6, 3),
        "loop_shares": [round(own.loop_cpu_s / own.wall_s, 3) for own in driven.vitals],
        "reading_s": round(time.perf_counter() - begun_s, 2),
    }  # fmt: skip


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--servers", type=int, default=6)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4, 8])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--streams", type=int, default=200)
    parser.add_argument("--per-stream", type=int, default=40)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--gap-us", type=int, default=20_000)
    parser.add_argument("--hold", type=int, default=0)
    parser.add_argument("--output")
    return parser.parse_args()


if __name__ == "__main__":
    main()
