"""What observing the machine costs a load: without an observer, with counters alone, and with two GPUs that are looked at.

    python tests/load_benchmark/observed.py --rounds 8                  # two GPUs of a compiled stand-in for the driver
    python tests/load_benchmark/observed.py --gpus 0 1 2 3 4 5 6 7      # real ones

The mock server is on the first core; the client, and with it the process that looks, on the second. All three ways in turn
in each round; printed are the median of each and the medians of the rounds' own ratios to the first way, with their range.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path

import orjson

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parent.parent))
from paced import compiled, serving

from dsabench.load.drive import send_plan_here
from dsabench.load.judge.validity import TypicalTimes, judge_client
from dsabench.load.plan import ClosedLoop, LoadPlan
from dsabench.machine.sampler import MachineReader, MachineSampler
from nvml_driver import driver

STREAMS, REQUESTS, TOKENS = 200, 800, 128


def main() -> None:
    options = _options()
    server_core, client_core = sorted(os.sched_getaffinity(0))[:2]
    os.sched_setaffinity(0, {client_core})
    with tempfile.TemporaryDirectory() as folder:
        library = None if options.gpus else str(driver(Path(folder)))
        gpus = tuple(options.gpus or ("0", "1"))
        ways = {"no observer": None, "counters": (), "GPUs": gpus}
        _say_looks(gpus, library)
        with serving(compiled(Path(folder)), cores=(server_core,)) as mock:
            seen: dict[str, list[tuple[float, float, float]]] = {name: [] for name in ways}
            _run(mock.base_url, None)
            for _ in range(options.rounds):
                for name, looked_at in ways.items():
                    observer = None if looked_at is None else MachineSampler(gpus=looked_at, library=library)
                    seen[name].append(_run(mock.base_url, observer))
    for place, what in enumerate(("frames/s", "client CPU, µs a frame", "p99 of the loop's lag, ms")):
        _say(what, {name: [run[place] for run in runs] for name, runs in seen.items()})


def _run(url: str, observer: MachineSampler | None) -> tuple[float, float, float]:
    body = orjson.dumps({"input_ids": [1], "sampling_params": {"max_new_tokens": TOKENS}, "stream": True})
    plan = LoadPlan(f"{url}/generate", [body] * REQUESTS, ClosedLoop(STREAMS), workers=1)
    with observer or nullcontext():
        driven = send_plan_here(plan)
    recording, [vitals], health = (
        driven.recording,
        driven.vitals,
        judge_client(driven.vitals, driven.read_counts, driven.recording.late_s, TypicalTimes()),
    )
    recording.close()
    assert observer is None or observer.fault is None
    frames = REQUESTS * TOKENS
    return frames / float(recording.done_s.max()), vitals.cpu_s / frames * 1e6, health.lag_p99_ms


def _say_looks(gpus: Sequence[str], library: str | None) -> None:
    for name, looked_at in {"counters": (), "GPUs": gpus}.items():
        machine = MachineReader(sorted(os.sched_getaffinity(0)), looked_at, library)
        machine.look()
        begun_s = time.thread_time()
        for _ in range(200):
            machine.look()
        print(f"one look, {name}: {(time.thread_time() - begun_s) * 5e3:.0f} µs of CPU")


def _say(what: str, ways: dict[str, list[float]]) -> None:
    print(what)
    first = ways["no observer"]
    for name, values in ways.items():
        ratios = sorted(value / base for value, base in zip(values, first, strict=True))
        print(f"  {name}: {statistics.median(values):.2f}; ratio {statistics.median(ratios):.3f}"
              f" ({ratios[0]:.3f} to {ratios[-1]:.3f})")  # fmt: skip


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--gpus", nargs="+", help="numbers of real GPUs")
    return parser.parse_args()


if __name__ == "__main__":
    main()
