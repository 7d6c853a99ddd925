"""Boot the reference runtime in rounds into two journals, the stuff of `judge.py`. Goes on where it stopped; SIGINT or SIGTERM end it.

    python tests/power_study/measure.py --minutes 25 --results results/power-study

A round is one boot of `base` and one of `candidate`, in an order that the seed gives. The candidate is the same program, setting
and workload; in its server every pass takes 1 / (1 - 0.05) of its time (`slowed/sitecustomize.py`). Nothing is left out or repeated.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import signal
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

from dsabench.config.load import load_study
from dsabench.model.record import Record
from dsabench.reference.runtime import ReferenceRuntime
from dsabench.results.journal import Journal
from dsabench.study.regression_check import OpenRuntime, look_at, measure_boots

CONFIG = Path(__file__).with_name("power.yaml")
SLOWED = Path(__file__).with_name("slowed").absolute()
SLOWDOWN = 0.05
SEED = 20261122
SIDES = ("base", "candidate")


def order_of(round_: int) -> tuple[str, ...]:
    """The sides of a round in the order in which they boot; the same whenever it is asked."""
    return SIDES if np.random.default_rng([SEED, round_]).random() < 0.5 else SIDES[::-1]


def slowed(installed: OpenRuntime) -> OpenRuntime:
    """The same runtime with the slowdown on its path."""
    runtime = installed.runtime
    assert isinstance(runtime, ReferenceRuntime)
    paths = [str(SLOWED), *filter(None, [runtime.source_path.get("PYTHONPATH")])]
    env = {**runtime.launch.env, "PYTHONPATH": os.pathsep.join(paths), "POWER_STUDY_SLOWDOWN": str(SLOWDOWN)}
    return replace(installed, runtime=ReferenceRuntime(replace(runtime.launch, env=env)))


def boots_had(folder: Path) -> int:
    """Boots of a side so far, those that failed included."""
    return len({record.boot for record in Journal(folder).read().records})


async def main(results: Path, minutes: float, rounds: int) -> None:
    config = load_study(str(CONFIG))
    plain = await look_at(config)
    installed = dict(zip(SIDES, (plain, slowed(plain)), strict=True))
    ends_s = time.monotonic() + 60 * minutes

    def say(records: tuple[Record, ...]) -> None:
        values = [
            f"{r.trial.workload.name} {r.outcome.metrics['total_throughput_tok_s'].value:,.0f} tok/s"
            if r.outcome.kind == "measured"
            else f"{r.trial.workload.name} failed: {r.outcome.fault}"
            for r in records
        ]
        print(f"  {', '.join(values)}", flush=True)

    had = {side: boots_had(results / side) for side in SIDES}
    for round_ in range(rounds):
        for side in order_of(round_):
            if had[side] > round_:
                continue
            if time.monotonic() > ends_s:
                return
            print(f"round {round_ + 1}, {side}:", flush=True)
            say(await measure_boots(config, installed[side], results / side, 1))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=25.0)
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--results", type=Path, default=Path("results/power-study"))
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # a timeout ends it as Ctrl-C does: the server is stopped
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(main(given.results, given.minutes, given.rounds))
