"""The result of an eval on the terminal and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from textwrap import shorten

from pydantic import JsonValue
from rich.console import Console

from dsabench.evals.ask import Target
from dsabench.evals.conduct import Finished
from dsabench.evals.plan import Plan
from dsabench.evals.published import Beside, beside_table, nearest_published
from dsabench.evals.statistics import mean_score
from dsabench.evals.summarise import Tally
from dsabench.model.record import Metric, Scored
from dsabench.reporting.eval_lines import result_lines

_DIFFERING_SHOWN = 3


def result_object(plan: Plan, target: Target, finished: Finished, beside: Sequence[Beside]) -> dict[str, JsonValue]:
    """The JSON object of `--json`. Scores are shares of 1, unrounded; what was not measured is null."""
    counted, outcome, task = finished.tally, finished.record.outcome, plan.task
    mean = mean_score(counted.scores)
    metrics = outcome.metrics if isinstance(outcome, Scored) else {}
    return {
        "eval": task.name,
        "harness_id": task.harness_id,
        "model": target.model,
        "base_url": target.base_url,
        "score": mean.value,
        "original_score": mean_score(counted.as_original().scores).value,
        "differing": len(counted.differing),
        "stderr": mean.standard_error,
        "ci_low": mean.interval.low,
        "ci_high": mean.interval.high,
        "n": counted.total,
        "n_questions": mean.questions,
        "n_invalid": counted.no_answer,
        "n_failed": counted.failed,
        "n_truncated": counted.truncated,
        "repeat": task.repeat,
        "scores": list(counted.passes()),
        "num_shots": task.num_shots,
        "words": None if task.words is None else list(task.words),
        "retries": finished.pace.retries,
        "resumed": finished.resumed,
        "latency_s": finished.pace.duration_s,
        "output_throughput_tok_s": _value(metrics.get("output_throughput_tok_s")),
        "metrics": {name: metric.value for name, metric in metrics.items()},
        "published": [{"theirs": one.theirs, "metric": one.metric, "line": one.line()} for one in beside],
        "warnings": list(outcome.warnings) if isinstance(outcome, Scored) else [],
        "samples": str(finished.samples.absolute()),
        "record": f"{finished.record.id}:{finished.record.occasion}",
        "scored": finished.is_scored,
    }


def print_eval(console: Console, plan: Plan, finished: Finished, beside: Sequence[Beside], page: Path | None) -> None:
    """The lines that users know, then what they leave out."""
    outcome = finished.record.outcome
    assert isinstance(outcome, Scored)
    counted, metrics = finished.tally, outcome.metrics
    lines = result_lines(plan.task, counted, metrics)
    score, error = metrics["score"], metrics.get("score_standard_error")
    lines.append("")
    spread = "" if error is None else f" ± {error.value:.4f} (standard error by question)"
    lines.append(f"score {score.value:.4f}{spread}, 95 % interval [{score.ci_low:.4f}, {score.ci_high:.4f}]")
    lines += _graders_apart(counted, metrics)
    lines.append(
        f"{counted.total} answers to {len(counted.questions)} questions: {counted.no_answer} without an answer, "
        f"{counted.truncated} cut, {counted.failed} failed, {finished.pace.retries} retries"
    )
    if (accepted := metrics.get("accept_length.weighted")) is not None:
        lines.append(f"accept length {accepted.value:.2f}: tokens of a decode step, drafts among them, on this text")
    if finished.resumed:
        lines.append(f"{finished.resumed} of them from an earlier run; latency and throughput are of the others")
    nearest = nearest_published(beside)
    lines += [one.line() for one in nearest if one.is_accuracy]
    lines += beside_table(nearest, counted.as_original().passes())
    lines.append(f"samples: {finished.samples}" + (f", page: {page}" if page else ""))
    for line in lines:
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    for warning in outcome.warnings:
        console.print(f"warning: {warning}", style="yellow", markup=False, soft_wrap=True)


def _graders_apart(counted: Tally, metrics: Mapping[str, Metric]) -> Iterator[str]:
    """What the original's grader says, and in which answers it took something else."""
    if not counted.has_original:
        return
    original = metrics["original_score"]
    yield (
        f"the original's grader: {original.value:.4f}, 95 % interval [{original.ci_low:.4f}, {original.ci_high:.4f}]; "
        f"it takes another answer than a careful reader in {len(counted.differing)} of {counted.total}"
    )
    # Those that change the score are what a reader wants to see.
    for sample in sorted(counted.differing, key=lambda one: one.score == one.original_score)[:_DIFFERING_SHOWN]:
        read, took = (shorten(one or "none", 40) for one in (sample.answer, sample.original_answer))
        yield f"  {sample.id}: read {read}, the original took {took}, expected {shorten(sample.expected, 40)}"


def _value(metric: Metric | None) -> float | None:
    return None if metric is None else metric.value
