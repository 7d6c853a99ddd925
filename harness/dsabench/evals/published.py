"""A run beside published scores: what the interval says, and which settings differ."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from dsabench.config.runtime_kinds import has_random_weights
from dsabench.evals.summarise import original_metrics
from dsabench.model.evals import EvalSpec, EvalTask, PublishedScore
from dsabench.model.record import EvalTrial, Metric, Record, Scored


@dataclass(frozen=True, slots=True)
class Beside:
    """One published score and ours."""

    published: PublishedScore
    metric: str
    theirs: float
    ours: Metric
    differs: tuple[str, ...]
    """`NAME OURS, theirs THEIRS` for each setting that is another; a setting that was not published is not compared."""

    @property
    def is_accuracy(self) -> bool:
        """Whether it is one of the run's scores, and no time, count or score of a part."""
        return self.metric == "score" or self.metric.startswith(("pass_at.", "majority_at."))

    @property
    def is_below(self) -> bool:
        """Whether our whole interval lies below the published score."""
        return self.ours.ci_high is not None and self.theirs > self.ours.ci_high

    @property
    def word(self) -> str:
        """Where the published score lies."""
        if self.ours.ci_low is None or self.ours.ci_high is None:
            return "no interval"
        if self.is_below:
            return "below the published"
        return "above the published" if self.theirs < self.ours.ci_low else "agrees with the published"

    def line(self) -> str:
        """One line for people."""
        interval = ""
        if self.ours.ci_low is not None and self.ours.ci_high is not None:
            interval = f" [{self.ours.ci_low:.3f}, {self.ours.ci_high:.3f}]"
        settings = f"; differs: {'; '.join(self.differs)}" if self.differs else ""
        if not self.is_accuracy:
            return f"{self.metric} {_shown(self.ours.value)}{interval}, published {_shown(self.theirs)} ({self.published.model}, {self.published.source}){settings}"
        return (
            f"{self.metric} {self.ours.value:.3f}{interval} {self.word} {self.theirs:.3f} "
            f"({self.published.model}, {self.published.source}){settings}"
        )


def beside_published(
    spec: EvalSpec, task: EvalTask, model: str, metrics: Mapping[str, Metric], *, other_data: bool
) -> tuple[Beside, ...]:
    """Every published score of a metric that this run has, by the grader of the eval's original; the runs most like ours first, those of unknown settings last."""
    if task.harness_id != spec.harness_id:  # a driver's own prompts or parser: no published score is of them
        return ()
    ours = original_metrics(metrics)
    found = [
        Beside(entry, metric, theirs, ours[metric], _differences(entry, task, model, other_data=other_data))
        for entry in spec.published
        for metric, theirs in entry.scores.items()
        if metric in ours
    ]
    return tuple(sorted(found, key=lambda one: (not one.published.settings, len(one.differs))))


def nearest_published(found: Sequence[Beside]) -> list[Beside]:
    """Those of the published run that differs least from ours, one for each metric."""
    return [one for one in found if one.published is found[0].published]


def beside_record(record: Record, spec: EvalSpec) -> list[Beside]:
    """A recorded score beside the published run that differs least; empty without a score, and for random weights."""
    trial, outcome = record.trial, record.outcome
    if not isinstance(trial, EvalTrial) or not isinstance(outcome, Scored):
        return []
    if has_random_weights(trial.runtime, record.resolved):
        return []
    other_data = spec.dataset.sha256 not in {None, trial.workload.dataset_sha256}
    return nearest_published(
        beside_published(spec, trial.workload, trial.runtime.model, outcome.metrics, other_data=other_data)
    )


def beside_table(nearest: Sequence[Beside], passes: Sequence[float]) -> Iterator[str]:
    """What else was published of that run beside ours: each pass, each subject, tokens and seconds. Lines for people."""
    rows = [(one.metric, _shown(one.ours.value), _shown(one.theirs)) for one in nearest if not one.is_accuracy]
    if not rows and not (nearest and nearest[0].published.passes):
        return
    published = nearest[0].published
    yield f"beside {published.model}, {published.source}:"
    if published.passes:
        for name, scores in (("passes", passes), ("theirs", published.passes)):
            low, high = min(scores), max(scores)
            yield f"  {name} {low:.3f} to {high:.3f}: {' '.join(f'{score:.3f}' for score in scores)}"
    widths = [max(map(len, column)) for column in zip(*rows, ("", "ours", "theirs"), strict=True)]
    for name, ours, theirs in [("", "ours", "theirs"), *rows] if rows else []:
        yield f"  {name:<{widths[0]}}  {ours:>{widths[1]}}  {theirs:>{widths[2]}}"


def _shown(value: float) -> str:
    return f"{value:.3f}" if value < 10 else f"{value:,.0f}" if value >= 1000 else f"{value:.1f}"


def _differences(entry: PublishedScore, task: EvalTask, model: str, *, other_data: bool) -> tuple[str, ...]:
    differs = [] if short_name(entry.model) == short_name(model) else [f"model {model}, theirs {entry.model}"]
    for name, theirs in entry.settings.items():
        ours = getattr(task, name)
        if ours != theirs:
            differs.append(f"{name} {'none' if ours is None else ours}, theirs {theirs}")
    return (*differs, *(("data file",) if other_data else ()))


def short_name(model: str) -> str:
    """A model without its owner or folder."""
    return model.rstrip("/").rpartition("/")[2].lower()
