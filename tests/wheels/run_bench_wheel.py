"""Runs the wheel's `sglang.benchmark.serving`: `PYTHON run_bench_wheel.py FOLDER FLAGS…` (see `bench_wheel.py`)."""

from __future__ import annotations

import sys
from pathlib import Path

from bench_wheel import import_serving

if __name__ == "__main__":
    serving = import_serving(Path(sys.argv[1]))
    sys.argv = ["serving", *sys.argv[2:]]
    serving.cli_main()
