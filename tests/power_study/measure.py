"""Boot the reference runtime many times, one setting, into a journal: the stuff of `judge.py`. Goes on where it stopped.

python tests/power_study/measure.py --boots 120 --results results/power-study
"""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path

from dsabench.cli.measure_boots import look_at, measure_boots
from dsabench.config.load import load_sweep
from dsabench.model.record import Record
from dsabench.store.journal import Journal

CONFIG = Path(__file__).with_name("power.yaml")


async def main(results: Path, boots: int) -> None:
    config = load_sweep(str(CONFIG))
    installed = await look_at(config)
    have = {
        record.boot
        for record in Journal(results).read().records
        if record.environment.fingerprint == installed.environment.fingerprint and record.outcome.kind == "measured"
    }

    def say(done: int, records: tuple[Record, ...]) -> None:
        values = [
            f"{r.trial.workload.name} {r.outcome.metrics['total_throughput_tok_s'].value:,.0f} tok/s"
            for r in records
            if r.outcome.kind == "measured"
        ]
        print(f"boot {len(have) + done} of {boots}: {', '.join(values) or 'failed'}", flush=True)

    if len(have) < boots:
        await measure_boots(config, installed, results, boots - len(have), say)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--boots", type=int, default=120)
    parser.add_argument("--results", type=Path, default=Path("results/power-study"))
    given = parser.parse_args()
    asyncio.run(main(given.results, given.boots))
