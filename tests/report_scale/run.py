"""How long and how large a report of many trials is: generated records and samples in a temporary folder, then `dsabench report`.

    python tests/report_scale/run.py --trials 10000 --samples 5000000

The times are made up (seeded); their shape is the reader's: one Parquet file a trial, settings as a sglang server tells
them. Prints seconds, peak memory and the largest page as JSON; exits 1 beyond 60 s, 2 GB or 2 MB.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
import uuid
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from dsabench.model.environment import Environment
from dsabench.model.record import Failed, Measured, Metric, Outcome, Record, Trial
from dsabench.model.runtime import RuntimeSpec
from dsabench.model.workload import Workload
from dsabench.results.journal import read_journal

ROOT = Path(__file__).parents[2]
LIMITS = {"seconds": 60.0, "peak_gb": 2.0, "largest_page_mb": 2.0}
FRAMES = 8
"""Of one answer; MTP and short answers have few."""


def write_study(folder: Path, trials: int, samples: int) -> None:
    """A journal whose environment and server answer are those of a committed record."""
    real = next(r for r in read_journal(ROOT / "results/h200/slice/journal.jsonl").records if r.resolved)
    rng = np.random.default_rng(1)
    (folder / "samples").mkdir(parents=True)
    each = max(samples // trials, 1)
    with (folder / "journal.jsonl").open("w") as journal:
        for number in range(trials):
            record = _record(number, real.environment, rng)
            if isinstance(record.outcome, Measured):
                _write_samples(folder / str(record.outcome.samples), each, rng)
            journal.write(
                record.model_copy(update={"resolved": real.resolved}).model_dump_json(exclude_none=True) + "\n"
            )


def _record(number: int, environment: Environment, rng: np.random.Generator) -> Record:
    setting, load = divmod(number, 5)
    knobs = {
        "prefill_backend": ("flashmla_sparse", "flashmla_kv", "flashmla_auto")[setting % 3],
        "chunked_prefill_size": 1024 * (1 + setting // 3 % 8),
        "mha_threshold_tokens": 512 * (setting // 24 % 16),
        "max_running_requests": 16 + setting // 384,
    }
    concurrency = 4 * 2**load
    spec = RuntimeSpec(kind="sglang", model="deepseek-ai/DeepSeek-V3.2", version="0.5.16", knobs=knobs)
    workload = Workload(
        name=f"c{concurrency}", dataset="random-ids", input_len=1024, output_len=64, num_prompts=500,
        max_concurrency=concurrency,
    )  # fmt: skip
    speed = 1e4 * (1 + 0.1 * (setting % 3) + 0.02 * (setting // 3 % 8)) * concurrency**0.5 * rng.lognormal(0, 0.02)
    names = {
        "total_throughput_tok_s": speed,
        "output_throughput_tok_s": speed / 17,
        **{f"{family}.{p}": 1e6 * i / speed * k for i, family in enumerate(("ttft_ms", "itl_ms", "tpot_ms", "e2e_ms", "queue_wait_ms"), 1)
           for k, p in enumerate(("mean", "p50", "p90", "p95", "p99", "min", "max"), 1)},
    }  # fmt: skip
    outcome: Outcome = Measured(
        metrics={name: Metric(value=float(value), n=500) for name, value in names.items()},
        samples=f"samples/{number}.parquet",
    )
    if number % 50 == 49:
        outcome = Failed(
            stage="boot", fault="out_of_memory", message="CUDA out of memory", log_tail="a line of a log\n" * 60
        )
    trial = Trial(runtime=spec, workload=workload)
    return Record(
        id=trial.id, occasion=0, boot=str(uuid.UUID(int=setting)), study="scale", trial=trial, environment=environment,
        started_at=datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=number), duration_s=9.0, outcome=outcome,
    )  # fmt: skip


def _write_samples(file: Path, count: int, rng: np.random.Generator) -> None:
    """Columns straight to Parquet: five million objects would take longer than the report."""
    sent = np.sort(rng.uniform(0, 60, count))
    gaps = rng.exponential(0.02, (count, FRAMES))
    at_s = sent[:, None] + 0.1 + np.cumsum(gaps, axis=1)
    offsets = pa.array(np.arange(count + 1, dtype=np.int32) * FRAMES)
    zeros = np.zeros(count, np.int32)
    table = pa.table(
        {
            "index": np.arange(count, dtype=np.int32), "scheduled_s": sent, "sent_s": sent, "done_s": at_s[:, -1],
            "input_len": zeros + 1024, "output_len_asked": zeros + FRAMES, "input_tokens": zeros + 1024,
            "cached_tokens": zeros, "accept_length": np.ones(count), "dp_rank": zeros,
            "finish_reason": pa.array(["length"] * count), "count_source": pa.array(["frames"] * count),
            "error": pa.nulls(count, pa.string()),
            "frame_at_s": pa.ListArray.from_arrays(offsets, pa.array(at_s.ravel())),
            "frame_tokens": pa.ListArray.from_arrays(offsets, pa.array(np.ones(count * FRAMES, np.int32))),
        }
    )  # fmt: skip
    pq.write_table(table, file, compression="zstd")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=10_000)
    parser.add_argument("--samples", type=int, default=5_000_000)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        began = time.perf_counter()
        write_study(folder / "study", given.trials, given.samples)
        wrote_s = time.perf_counter() - began
        command = [
            sys.executable,
            "-m",
            "dsabench",
            "report",
            "--results",
            str(folder / "study"),
            "--out",
            str(folder / "site"),
        ]
        began = time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        seconds = time.perf_counter() - began
        pages = [page.stat().st_size for page in (folder / "site").rglob("*.html")]
        found = {
            "trials": given.trials, "samples": given.samples, "written_in_s": round(wrote_s, 1), "seconds": round(seconds, 1),
            "peak_gb": round(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1e6, 2),
            "pages": len(pages), "largest_page_mb": round(max(pages) / 1e6, 2), "site_mb": round(sum(pages) / 1e6),
        }  # fmt: skip
    print(json.dumps(found))
    return int(any(found[name] > limit for name, limit in LIMITS.items()))


if __name__ == "__main__":
    sys.exit(main())
