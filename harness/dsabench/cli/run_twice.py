"""A/A: what two measurements of one candidate differ by."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import median

from dsabench.cli.kernel_progress import Progress, follow, say, say_point, title_of
from dsabench.cli.run_kernels import environment_of
from dsabench.errors import InputError
from dsabench.microbench.conduct import conduct
from dsabench.microbench.pairs import Pair, append_pair
from dsabench.microbench.request import Point, Request
from dsabench.microbench.worker_process import Said
from dsabench.model.environment import Environment
from dsabench.signals import run_loop, stop_at_any_signal
from dsabench.store.claim import claim

_NO_DIFFERENCE = 0.99
_MEDIAN = 0.01


def measure_twice(request: Request, python: str | None, results: Path, *, as_json: bool) -> int:
    """0 when pairs come out as no difference and differ by less than 1 % in the median, else 1.

    Raises:
        InputError: no pair has two times, or another process measures into the folder.

    """
    stop_at_any_signal()
    with claim(results):
        twice = _Twice(results, Progress(request, python))
        run_loop(follow(conduct(request, python, twice.known), twice.progress, twice.hear))
    pairs = twice.pairs
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


class _Twice:
    """Pairs as they are heard, each recorded."""

    def __init__(self, results: Path, progress: Progress) -> None:
        self.pairs: list[Pair] = []
        self.progress = progress
        self._results = results
        self._environment: Environment | None = None

    async def known(self, device: Said) -> tuple[Point, ...]:
        """Nothing: pairs are measured anew each time."""
        self._environment = await environment_of(device)
        return ()

    def hear(self, said: Said) -> None:
        """Record pairs."""
        if said["is"] == "check":
            say_point(said, self.progress.count(said))
        elif said["is"] == "left" and said["points"]:
            say(f"{said['points']} points left, for which the budget had no time")
        elif said["is"] == "pair" and self._environment is not None:
            self._record(said, f"{self.progress.count(said)}{title_of(said)}", self._environment)

    def _record(self, said: Said, what: str, environment: Environment) -> None:
        pair = Pair.of(said, environment)
        if pair is None:
            say(f"{what}: not at rest twice")
            return
        self.pairs.append(pair)
        append_pair(self._results, pair)
        verdict = "apart" if pair.is_apart else "no difference"
        say(f"{what}: {pair.first_us:.1f}, {pair.second_us:.1f} µs: {verdict}")
