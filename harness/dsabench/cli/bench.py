"""`dsabench bench`: one load test against a URL.

Read by argparse and not by typer, and imported without it: what the client costs before its first request counts in
its measured cost.
"""

from __future__ import annotations

from collections.abc import Sequence


def bench(argv: Sequence[str]) -> int:
    """Run one command line (without the word `bench`); returns the exit code."""
    from dsabench.cli.bench_flags import parse_flags

    args = parse_flags(argv)
    from dsabench.load.bench_serving.cpu import cpu_s

    startup_cpu_s = cpu_s()
    from dsabench.cli.run_bench import run_bench

    return run_bench(args, startup_cpu_s)
