"""What the scheduler of a study costs: CPU time a trial, and memory, with machines whose trials take no time, or a moment.

    python tests/scheduler_cost.py --trials 2000 --machines 2 [--proposer random]
    python tests/scheduler_cost.py --trials 40 --machines 2 --seconds 0.5 --confirm-boots 10

Prints a line for each tenth of the trials: CPU milliseconds of the scheduler a trial, and its memory. Then how long all took.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import psutil

from dsabench.config.load import load_study
from dsabench.model.environment import Environment
from dsabench.model.record import Record
from dsabench.study.study import Study
from factories import ENVIRONMENT
from pretended import PretendedCluster, PretendedMachine

CONFIG = """
name: no-op
runtime: {{kind: reference, model: tiny, base: {{kv_cache_dtype: bfloat16, chunked_prefill_size: 64}}}}
workloads:
  - {{name: one, dataset: random-ids, input_len: 16, output_len: 2, num_prompts: 12, max_concurrency: 2}}
sweeps:
  - axes:
      chunked_prefill_size: {chunks}
      max_running_requests: {running}
proposer: {{kind: {proposer}, seed: 0}}
objective: {{metric: output_throughput_tok_s, direction: maximize}}
budget: {{max_trials: {trials}, confirm_boots: {confirm_boots}}}
"""


def main() -> None:
    """Run one study."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=2000)
    parser.add_argument("--machines", type=int, default=2)
    parser.add_argument("--proposer", default="random")
    parser.add_argument("--seconds", type=float, default=0.0, help="of a trial, in the mean")
    parser.add_argument("--confirm-boots", type=int, default=0)
    args = parser.parse_args()
    side = int(args.trials**0.5) + 2
    chunks, running = [64 * n for n in range(1, side + 1)], list(range(1, side + 1))
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "study.yaml"
        file.write_text(CONFIG.format(chunks=chunks, running=running, **vars(args)))
        told = list[tuple[float, int]]()
        """CPU seconds and bytes after each record."""
        here = psutil.Process()

        def kept(_: Record) -> None:
            told.append((time.process_time(), here.memory_info().rss))

        cluster = PretendedCluster(
            [PretendedMachine(kept, on(number), args.seconds) for number in range(args.machines)]
        )
        started_s = time.monotonic()
        Study(load_study(file), Path(folder) / "results").run_on(cluster)
        took_s = time.monotonic() - started_s
    step = max(1, len(told) // 10)
    for first in range(0, len(told) - step + 1, step):
        (start_s, _), (end_s, held) = told[first], told[first + step - 1]
        print(
            f"trials {first:6} to {first + step:6}: {1000 * (end_s - start_s) / step:7.2f} ms of CPU each, {held >> 20} MiB"
        )
    print(f"{len(told)} trials on {args.machines} machines in {took_s:.1f} s")


def on(number: int) -> Environment:
    """Machines that are alike."""
    return ENVIRONMENT.model_copy(update={"machine": f"machine {number}"})


if __name__ == "__main__":
    main()
