"""What the scheduler of a study costs: CPU time a trial, and memory, with machines whose trials take no time.

    python tests/scheduler_cost.py --trials 2000 --machines 2 [--proposer random]

Prints a line for each tenth of the trials: CPU milliseconds of the scheduler a trial, and its memory.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import psutil

from dsabench.config.load import load_study
from dsabench.config.specs import StudyConfig
from dsabench.model.environment import Environment
from dsabench.model.record import Measured, Metric, Record
from dsabench.study.machines import EvalsOfBoot, Needs
from dsabench.study.session import PlannedTrial, StudyObserver, TrialSession
from dsabench.study.study import Study
from factories import ENVIRONMENT

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
budget: {{max_trials: {trials}, confirm_boots: 0}}
"""


@dataclass
class NoOp:
    """A machine that has measured as soon as it is asked."""

    told: list[tuple[float, int]] = field(default_factory=list)
    """CPU seconds and bytes after each record."""
    environment: Environment = ENVIRONMENT

    async def run_boot(
        self, session: TrialSession, trials: Sequence[PlannedTrial], evals: EvalsOfBoot | None = None
    ) -> tuple[Record, ...]:
        """Write a record of each trial."""
        del evals
        await asyncio.sleep(0)
        boot, records = str(uuid.uuid4()), []
        for one in trials:
            chunk = float(one.trial.runtime.knobs["chunked_prefill_size"])
            records.append(
                Record(
                    id=one.trial.id,
                    occasion=one.occasion,
                    boot=boot,
                    study=session.study,
                    round=one.round,
                    phase=one.phase,
                    turn=one.turn,
                    trial=one.trial,
                    environment=ENVIRONMENT,
                    started_at=datetime.now(UTC),
                    duration_s=0.0,
                    boot_s=0.0,
                    outcome=Measured(metrics={"output_throughput_tok_s": Metric(value=100.0 + chunk, n=12)}),
                )
            )
            session.journal.append(records[-1])
            self.told.append((time.process_time(), psutil.Process().memory_info().rss))
        return tuple(records)


@dataclass
class NoOps:
    """Several of them."""

    all: list[NoOp]

    @asynccontextmanager
    async def machines(
        self, config: StudyConfig, needs: Needs, observer: StudyObserver
    ) -> AsyncIterator[Sequence[NoOp]]:
        """All of them."""
        del config, needs, observer
        yield self.all


def main() -> None:
    """Run one study."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=2000)
    parser.add_argument("--machines", type=int, default=2)
    parser.add_argument("--proposer", default="random")
    args = parser.parse_args()
    side = int(args.trials**0.5) + 2
    chunks, running = [64 * n for n in range(1, side + 1)], list(range(1, side + 1))
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "study.yaml"
        file.write_text(CONFIG.format(chunks=chunks, running=running, proposer=args.proposer, trials=args.trials))
        noops = NoOps([NoOp() for _ in range(args.machines)])
        Study(load_study(file), Path(folder) / "results").run_on(noops)
    told = sorted(one for machine in noops.all for one in machine.told)
    step = max(1, len(told) // 10)
    for first in range(0, len(told) - step + 1, step):
        (start_s, _), (end_s, held) = told[first], told[first + step - 1]
        print(
            f"trials {first:6} to {first + step:6}: {1000 * (end_s - start_s) / step:7.2f} ms of CPU each, {held >> 20} MiB"
        )


if __name__ == "__main__":
    main()
