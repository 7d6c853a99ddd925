"""A/A: what two measurements of one candidate differ by."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from statistics import median

from dsabench.cli.run_kernels import collect, environment_of, say_progress
from dsabench.errors import InputError
from dsabench.microbench.conduct import Said
from dsabench.microbench.pairs import Pair, append_pair
from dsabench.microbench.request import Request

_NO_DIFFERENCE = 0.99
_MEDIAN = 0.01


def measure_twice(request: Request, python: str | None, results: Path, *, as_json: bool) -> int:
    """0 when pairs come out as no difference and differ by less than 1 % in the median, else 1.

    Raises:
        InputError: no pair has two times.

    """
    pairs = asyncio.run(_measure(request, python, results))
    if not pairs:
        raise InputError("no pair was measured: nothing that was asked for runs here, is right and comes to rest")
    differences = [abs(pair.ratio - 1) for pair in pairs]
    same = sum(not pair.is_apart for pair in pairs)
    answer = {
        "pairs": len(pairs),
        "no_difference": same,
        "median_difference": median(differences),
        "largest_difference": max(differences),
    }
    if as_json:
        print(json.dumps(answer, indent=1))
    else:
        print(
            f"{len(pairs)} pairs, {same} no difference; "
            f"they differ by {median(differences):.2%} in the median, {max(differences):.2%} at most"
        )
    return 0 if same >= _NO_DIFFERENCE * len(pairs) and median(differences) < _MEDIAN else 1


async def _measure(request: Request, python: str | None, results: Path) -> list[Pair]:
    environment = await environment_of(request, python)
    pairs: list[Pair] = []

    def hear(said: Said) -> None:
        if said["is"] == "check":
            say_progress(said)
        elif said["is"] == "pair":
            pair = Pair.of(said, environment)
            what = f"{said['operator']} {said['candidate']} {said['shape_id']} {said['dtype']}"
            if pair is None:
                print(f"{what}: not at rest twice", file=sys.stderr)
                return
            pairs.append(pair)
            append_pair(results, pair)
            verdict = "apart" if pair.is_apart else "no difference"
            print(f"{what}: {pair.first_us:.1f}, {pair.second_us:.1f} µs: {verdict}", file=sys.stderr)

    await collect(request, python, hear)
    return pairs
