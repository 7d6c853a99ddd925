"""`dsabench bench`: one load test against a URL.

Read by argparse and not by typer, and imported without it: what the client costs before its first request counts in
its measured cost.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Sequence


def bench(argv: Sequence[str]) -> int:
    """Run one command line (without the word `bench`); returns the exit code."""
    # Neither imports nor reading what came back leave garbage in cycles, and looking for it costs 30 ms of CPU before
    # the first request. While the load runs it is looked for.
    was_on = gc.isenabled()
    gc.disable()
    try:
        return _bench(argv)
    finally:
        if was_on:
            gc.enable()


def _bench(argv: Sequence[str]) -> int:
    from dsabench.cli.bench_flags import parse_flags

    args = parse_flags(argv)
    # No matrix is multiplied here, and OpenBLAS's threads cost 30 ms of CPU to start.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from dsabench.cli.run_bench import run_bench
    from dsabench.load.bench_serving.phases import PhaseClock

    return run_bench(args, PhaseClock())
