"""What stopping a confirmation early saves and costs: the sweep's own judge on generated boots.

    python tests/sequential_stop.py

Boots of both sides take turns on a machine that drifts (AR(1), ρ = 0.9, 5 %), each with noise of its own, one workload. Effects of
0, 3, 5, 10 and 20 %; noise of a boot log-normal (2 %), with heavy tails (t with 3 degrees of freedom) or from two modes.
"""

from __future__ import annotations

import argparse
import math
import tempfile
from collections.abc import Callable, Container
from pathlib import Path

import numpy as np
import numpy.typing as npt

from dsabench.config.specs import StudyConfig
from dsabench.model.record import Measured, Metric, Record
from dsabench.results.scores import judge_confirmed, judged_metrics
from factories import make_failure, make_record, make_spec
from studies import load_study

BOOTS = 6
Logs = npt.NDArray[np.float64]
Sides = tuple[tuple[Record, ...], tuple[Record, ...]]
"""Base and candidate."""
NOISE: dict[str, Callable[[np.random.Generator, int], Logs]] = {
    "log-normal": lambda rng, n: rng.normal(0.0, 0.02, n),
    "heavy tails": lambda rng, n: 0.02 * rng.standard_t(3, n) / math.sqrt(3.0),
    "two modes": lambda rng, n: rng.choice((-0.02, 0.02), n) + rng.normal(0.0, 0.005, n),
}


def study(*, stops: bool) -> StudyConfig:
    """One workload, judged by one metric."""
    with tempfile.TemporaryDirectory() as folder:
        config = load_study(Path(folder))
    budget = config.budget.model_copy(update={"confirm_boots": BOOTS, "stop_when_decided": stops})
    objective = config.objective.model_copy(update={"constraints": ()})
    return config.model_copy(update={"budget": budget, "objective": objective, "workloads": config.workloads[:1]})


def ar1(rng: np.random.Generator, n: int) -> Logs:
    """A machine's drift: ρ = 0.9, 5 %."""
    drift = [rng.normal(0.0, 0.05)]
    for _ in range(n - 1):
        drift.append(0.9 * drift[-1] + rng.normal(0.0, 0.05 * math.sqrt(1 - 0.81)))
    return np.array(drift)


def in_turns(config: StudyConfig, logs: Logs, effect: float, lost: Container[int] = ()) -> Sides:
    """Base and candidate, AB BA AB, a minute each; boots at the lost places failed, and keep their turn."""
    sides: tuple[list[Record], list[Record]] = ([], [])
    for place, log in enumerate(logs.tolist()):
        turn, side = place // 2, (place + place // 2) % 2
        value = math.exp(log) * (1.0 + effect * side)
        measured = Measured(metrics={config.objective.metric: Metric(value=value, n=16)})
        record = make_record(
            spec=make_spec(side=side), workload=config.workloads[0], phase="confirm", minute=place, boot=f"{place}",
            outcome=make_failure() if place in lost else measured,
        )  # fmt: skip
        sides[side].append(record.model_copy(update={"turn": turn}))
    return tuple(sides[0]), tuple(sides[1])


def main() -> None:
    """Print a Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--studies", type=int, default=1000)
    studies = parser.parse_args().studies
    early, whole = study(stops=True), study(stops=False)
    load = early.workloads[0].name
    print(
        "| noise of a boot | effect | boots a side, mean of at most 6 | called better or worse | with all 6 boots | interval misses it |"
    )
    print("|---|--:|--:|--:|--:|--:|")
    for noise, draw in NOISE.items():
        for effect in (0.0, 0.03, 0.05, 0.1, 0.2):
            rng = np.random.default_rng(7)
            used = called = with_all = missed = 0
            for _ in range(studies):
                logs = ar1(rng, 2 * BOOTS) + draw(rng, 2 * BOOTS)
                base, candidate = ({load: side} for side in in_turns(early, logs, effect))
                metrics = judged_metrics(early.objective)
                (stopped,) = judge_confirmed(early, base, candidate, metrics).verdicts
                (full,) = judge_confirmed(whole, base, candidate, metrics).verdicts
                used += stopped.n_base
                called += stopped.verdict in {"better", "worse"}
                with_all += full.verdict in {"better", "worse"}
                low, high = stopped.ci_low, stopped.ci_high
                missed += low is not None and high is not None and not low <= effect <= high
            shares = (f"{100 * count / studies:.1f} %" for count in (called, with_all, missed))
            print(f"| {noise} | {100 * effect:.0f} % | {used / studies:.2f} | {' | '.join(shares)} |")


if __name__ == "__main__":
    main()
