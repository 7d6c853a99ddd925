"""What a driver itself says of a run: its metrics.json, held against what its predictions come to."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from dsabench.evals.summarise import original_metrics
from dsabench.model.record import Metric, Scored

_ALIKE = 0.0002
"""Shares of 1. NeMo-Skills may round its percentages to hundredths."""
_PERCENT = 100.0
_MEAN = re.compile(r"pass@1(?:\[(?:avg-of-)?(\d+)\])?|greedy|score")
"""NeMo-Skills tells the mean over every number of passes; the largest is that of the run."""
_OF_REPEATS = re.compile(r"(pass|majority)@(\d+)")


def read_told(folder: Path, predictions: str) -> dict[str, float] | None:
    """Our name of a metric → its value as a share of 1; None where no metrics.json lies beside the predictions.

    sgl-eval writes `{"aggregate": {"score": 0.04, "pass@4": 0.1, …}}`; NeMo-Skills, beside the predictions or one folder up,
    `{"aime25": {"pass@1[avg-of-4]": {"symbolic_correct": 87.5, …}, "majority@4": {…}}}`.
    """
    where = PurePosixPath(predictions).parent
    found = [path for at in (where, where.parent) for path in folder.glob(str(at / "metrics.json"))]
    for path in found:
        try:
            return dict(_values(json.loads(path.read_text(encoding="utf-8"))))
        except (OSError, ValueError, AttributeError, TypeError):
            continue
    return None


def held_against(scored: Scored, told: Mapping[str, float] | None) -> Scored:
    """The result with the driver's own figures as `driver.NAME`, and a warning where they are others than ours."""
    if told is None:
        warning = "the driver left no metrics.json: the scores are computed from its predictions"
        return scored.model_copy(update={"warnings": (*scored.warnings, warning)})
    n = scored.metrics["score"].n
    theirs = {f"driver.{name}": Metric(value=value, n=n) for name, value in told.items()}
    ours = original_metrics(scored.metrics)
    other = [
        f"the driver says {name} {value:.4f}, its predictions come to {ours[name].value:.4f}"
        for name, value in told.items()
        if name in ours and abs(ours[name].value - value) > _ALIKE
    ]
    return scored.model_copy(update={"metrics": {**scored.metrics, **theirs}, "warnings": (*scored.warnings, *other)})


def _values(data: dict[str, Any]) -> Iterator[tuple[str, float]]:
    if "aggregate" in data:
        modes = {mode: {_named(mode): float(value)} for mode, value in data["aggregate"].items()}
    else:
        modes = {mode: dict(_of_nemo(mode, said)) for benchmark in data.values() for mode, said in benchmark.items()}
    for _, values in sorted(modes.items(), key=lambda entry: _passes(entry[0])):
        yield from ((name, value) for name, value in values.items() if name is not None)


def _of_nemo(mode: str, said: Mapping[str, Any]) -> Iterator[tuple[str | None, float]]:
    """Also what it tells of the mean over the passes: answers that name none, and how far the passes are apart."""
    if "symbolic_correct" not in said:
        return
    yield _named(mode), float(said["symbolic_correct"]) / _PERCENT
    spread = said.get("symbolic_correct_statistics")
    if spread is not None and "no_answer" in said:
        yield "no_answer", float(said["no_answer"]) / _PERCENT
        yield "score_spread_of_runs", float(spread["std_dev_across_runs"])


def _named(mode: str) -> str | None:
    if _MEAN.fullmatch(mode):
        return "score"
    match = _OF_REPEATS.fullmatch(mode)
    return f"{match[1]}_at.{match[2]}" if match else None


def _passes(mode: str) -> int:
    match = _MEAN.fullmatch(mode)
    return int(match[1]) if match and match[1] else 0
