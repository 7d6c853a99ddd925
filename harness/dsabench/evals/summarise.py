"""From the samples of a run to its metrics."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dsabench.evals.sample import EvalSample
from dsabench.evals.statistics import MeanScore, majority, mean_of_questions, mean_score, pass_at_k, spread_of_runs
from dsabench.load.judge.metrics import mean_accept_length
from dsabench.model.record import Metric, Scored
from dsabench.stats.percentiles import percentile

THINKING_MARKS = ("</think>", "<think>")
_ORIGINAL = "original_"
_NO_ANSWER_SHARE = 0.05


@dataclass(frozen=True, slots=True)
class Tally:
    """A run's samples by question, and what was counted."""

    questions: dict[str, tuple[EvalSample, ...]]
    """Repeats in their order."""
    no_answer: int
    failed: int
    truncated: int
    thinking_in_content: int
    differing: tuple[EvalSample, ...]
    """Samples in which the original's grader and the careful reader took different answers."""

    @property
    def samples(self) -> tuple[EvalSample, ...]:
        """All of them, by question."""
        return tuple(sample for of_question in self.questions.values() for sample in of_question)

    @property
    def has_original(self) -> bool:
        """Whether the original's grader was asked beside the careful reader."""
        return any(sample.original_score is not None for sample in self.samples)

    def as_original(self) -> Tally:
        """The same samples with the grades of the eval's original."""
        return tally((sample.as_original() for sample in self.samples), tuple(self.questions))

    @property
    def total(self) -> int:
        """Samples, failed ones included."""
        return sum(map(len, self.questions.values()))

    @property
    def scores(self) -> list[list[float]]:
        """Question → repeats."""
        return [[sample.score for sample in samples] for samples in self.questions.values()]

    @property
    def repeat(self) -> int:
        """Passes over the questions."""
        return max(map(len, self.questions.values()))

    def passes(self) -> list[float]:
        """Mean of each pass."""
        return [sum(column) / len(column) for column in zip(*self.scores, strict=True)]

    def groups(self) -> dict[str, MeanScore]:
        """Mean of each subject or cell, in the order in which they are asked; empty where there are none."""
        found: dict[str, list[list[float]]] = {}
        for samples in self.questions.values():
            if samples[0].group is not None:
                found.setdefault(samples[0].group, []).append([sample.score for sample in samples])
        return {group: mean_score(scores) for group, scores in found.items()}


def tally(samples: Iterable[EvalSample], order: Sequence[str] | None = None) -> Tally:
    """Sort the samples by question (in `order`, else as they first appear) and count."""
    by_question: dict[str, list[EvalSample]] = {question: [] for question in order or ()}
    counted = list(samples)
    for sample in counted:
        by_question.setdefault(sample.question, []).append(sample)
    return Tally(
        {q: tuple(sorted(found, key=lambda sample: sample.repeat)) for q, found in by_question.items() if found},
        no_answer=sum(sample.standing == "no answer" for sample in counted),
        failed=sum(sample.standing == "failed" for sample in counted),
        truncated=sum(sample.truncated for sample in counted),
        thinking_in_content=sum(
            any(mark in (sample.completion or "") for mark in THINKING_MARKS) for sample in counted
        ),
        differing=tuple(sample for sample in counted if sample.graders_differ),
    )


def summarise(counted: Tally, *, duration_s: float | None, tokens: int | None) -> Scored:
    """Metrics of a whole run; `duration_s` and `tokens` are of the part that ran without a break."""
    samples = counted.samples
    metrics = {
        **_accuracy(counted),
        "failed": Metric(value=counted.failed / counted.total, n=counted.total),
        "truncated": Metric(value=counted.truncated / counted.total, n=counted.total),
    }
    if counted.has_original:
        metrics |= {f"{_ORIGINAL}{name}": metric for name, metric in _accuracy(counted.as_original()).items()}
        metrics["differing"] = Metric(value=len(counted.differing) / counted.total, n=counted.total)
    for name in ("completion_tokens", "prompt_tokens", "reasoning_tokens"):
        counts = [count for sample in samples if (count := getattr(sample, name)) is not None]
        if counts:
            metrics[f"{name}.mean"] = Metric(value=sum(counts) / len(counts), n=len(counts))
    drafted = [(s.accept_length, s.completion_tokens) for s in samples if s.accept_length and s.completion_tokens]
    if drafted:
        lengths, tokens_of = np.array(drafted, np.float64).T
        metrics |= {
            name: Metric(value=one.value, n=one.n) for name, one in mean_accept_length(lengths, tokens_of).items()
        }
    latencies = [sample.latency_s for sample in samples if sample.latency_s is not None]
    for q in (0.5, 0.9):
        if (at := percentile(latencies, q)) is not None:
            metrics[f"latency_s.p{q * 100:.0f}"] = Metric(value=at, n=len(latencies))
    if duration_s:
        metrics["duration_s"] = Metric(value=duration_s, n=1)
        if tokens:
            metrics["output_throughput_tok_s"] = Metric(value=tokens / duration_s, n=1)
    return Scored(metrics=metrics, warnings=tuple(warnings_of(counted)))


def _accuracy(counted: Tally) -> dict[str, Metric]:
    scores, count, repeat = counted.scores, len(counted.questions), counted.repeat
    mean = mean_score(scores)
    metrics = {"score": _metric(mean), "no_answer": Metric(value=counted.no_answer / counted.total, n=counted.total)}
    if mean.standard_error is not None:
        metrics["score_standard_error"] = Metric(value=mean.standard_error, n=count)
    if repeat > 1:
        votes = [
            majority([s.answer for s in samples], [s.score for s in samples]) for samples in counted.questions.values()
        ]
        passed = [pass_at_k(of_question, repeat) for of_question in scores]
        metrics[f"pass_at.{repeat}"] = _metric(mean_of_questions(passed))
        metrics[f"majority_at.{repeat}"] = _metric(mean_of_questions(votes))
        spread = spread_of_runs(scores)
        if spread is not None:
            metrics["score_spread_of_runs"] = Metric(value=spread, n=repeat)
    for group, mean_of_group in counted.groups().items():
        metrics[f"score_of.{group}"] = _metric(mean_of_group)
    return metrics


def original_metrics(metrics: Mapping[str, Metric]) -> dict[str, Metric]:
    """The metrics as the grader of the eval's original gives them, by the same names."""
    original = {name.removeprefix(_ORIGINAL): metric for name, metric in metrics.items() if name.startswith(_ORIGINAL)}
    return {**metrics, **original}


def _metric(mean: MeanScore) -> Metric:
    return Metric(value=mean.value, n=mean.questions, ci_low=mean.interval.low, ci_high=mean.interval.high)


def warnings_of(counted: Tally) -> Iterable[str]:
    """What the reader of the score must know."""
    if counted.thinking_in_content:
        yield (
            f"{counted.thinking_in_content} answers have thinking inside their content, where the original's grader reads "
            "it: start the server with its --reasoning-parser"
        )
    if counted.failed:
        yield f"{counted.failed} of {counted.total} requests failed and count as wrong"
    if counted.truncated:
        yield f"{counted.truncated} of {counted.total} answers were cut at max_tokens"
    # Those that were cut have a warning of their own.
    unclear = sum(sample.standing == "no answer" and not sample.truncated for sample in counted.samples)
    if unclear > _NO_ANSWER_SHARE * counted.total:
        yield f"{counted.no_answer} of {counted.total} answers name none: read some, and ask for the form that the eval wants"
