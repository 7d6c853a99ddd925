"""Two runs of an eval against each other, paired by question."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from statistics import mean

from dsabench.errors import InputError
from dsabench.evals.sample import EvalSample
from dsabench.evals.statistics import NonInferiority, mcnemar, non_inferiority, paired_bootstrap
from dsabench.model.verdict import Verdict, VerdictWord


@dataclass(frozen=True, slots=True)
class ComparedEval:
    """The samples of one setting; several runs of it are further repeats."""

    name: str
    eval: str
    samples: tuple[EvalSample, ...]
    runs: tuple[str, ...] = ()
    """Records or files that the samples are of."""

    @property
    def harness_id(self) -> str:
        """Of the first sample; a side holds one harness."""
        return self.samples[0].harness_id


def compare_evals(base: ComparedEval, candidate: ComparedEval, margin: float, quality: str = "accurate") -> Verdict:
    """Verdict on the score: "no difference" or "better" is not less accurate by more than the margin, "worse" is.

    Where the base itself scores no more than the margin, nothing could lose more than that: such an eval is inconclusive.
    `quality` is what a line for people calls a high score.

    Raises:
        InputError: the sides are of different harnesses or questions.

    """
    if base.harness_id != candidate.harness_id:
        raise InputError(
            f"{base.name} is of harness {base.harness_id}, {candidate.name} of {candidate.harness_id}: prompt, parser or "
            "metric differ, so their scores cannot be compared"
        )
    left, right = _by_question(base.samples), _by_question(candidate.samples)
    shared = [question for question in left if question in right]
    if not shared:
        raise InputError(f"{base.name} and {candidate.name} have no question in common")
    for question in shared:
        if left[question][0].expected != right[question][0].expected:
            raise InputError(f"{question}: the expected answers differ: the sides were asked from different data")
    if base.runs and set(base.runs) == set(candidate.runs):
        return _same(base, len(shared))
    left, right, graded_by = _read_alike(left, right, shared)
    scores = _scores(left, right, shared)
    result = non_inferiority(scores[0], scores[1], margin)
    notes = [*_notes(left, right, shared), *graded_by]
    if all(len(of_question) == 1 for side in scores for of_question in side):
        p = mcnemar([one for (one,) in scores[0]], [one for (one,) in scores[1]])
        notes.append(f"McNemar p = {p:.3g}")
    elif (drawn := paired_bootstrap(*scores)) is not None:
        notes.append(f"95 % bootstrap interval [{100 * drawn.low:+.2f}, {100 * drawn.high:+.2f}]")
    asked = _Asked(base.eval, margin, quality, len(shared), sum(map(mean, scores[0])) / len(shared))
    return _verdict(asked, result, notes)


@dataclass(frozen=True, slots=True)
class _Asked:
    """What the verdict is to be about."""

    eval: str
    margin: float
    quality: str
    count: int
    base_score: float

    def shows_nothing(self, result: NonInferiority) -> bool:
        """Whether no loss could have exceeded the margin."""
        return self.base_score <= self.margin and result.interval.low <= 0.0


def _verdict(asked: _Asked, result: NonInferiority, notes: list[str]) -> Verdict:
    count = asked.count
    return Verdict(
        metric="score",
        workload=asked.eval,
        unit="points",
        verdict="inconclusive" if asked.shows_nothing(result) else _word(result),
        effect=result.difference,
        ci_low=result.interval.low,
        ci_high=result.interval.high,
        mde=result.detectable,
        n_base=count,
        n_candidate=count,
        reason="; ".join([_reason(asked, result), *notes]),
    )


def _word(result: NonInferiority) -> VerdictWord:
    if result.answer == "yes":
        return "better" if result.interval.low > 0.0 else "no difference"
    return "worse" if result.answer == "no" else "inconclusive"


def _reason(of: _Asked, result: NonInferiority) -> str:
    margin, count, quality = of.margin, of.count, of.quality
    low, high = (f"{100 * end:+.2f}" for end in result.interval)
    found = f"{100 * result.difference:+.2f} points over {count} questions, 90 % interval [{low}, {high}]"
    most = in_points(margin)
    claim = f"not less {quality} by more than {most}"
    if of.shows_nothing(result):
        return (
            f"inconclusive whether {claim}: {found}; the base itself scores {100 * of.base_score:.2f} points, so no loss "
            "could be larger: take an eval that it can answer, or measure agreement"
        )
    if result.answer == "yes":
        return f"yes, {claim}: {found}"
    if result.answer == "no":
        return f"no, less {quality}: {found}, the loss exceeds {most} and is no chance (p = {result.worse_p:.2g})"
    if result.more_repeats is None:
        return f"inconclusive whether {claim}: {found}; repeats alone will not settle it, it takes more questions"
    return f"inconclusive whether {claim}: {found}; needs {result.more_repeats} more repeats a side"


def in_points(share: float) -> str:
    """`1 point`, `2.5 points`."""
    return "1 point" if share == 0.01 else f"{100 * share:g} points"


def _same(side: ComparedEval, count: int) -> Verdict:
    return Verdict(
        metric="score",
        workload=side.eval,
        unit="points",
        verdict="no difference",
        effect=0.0,
        n_base=count,
        n_candidate=count,
        reason="yes: both sides are the same run",
    )


Questions = dict[str, list[EvalSample]]


def _by_question(samples: Iterable[EvalSample]) -> Questions:
    found: Questions = {}
    for sample in samples:
        found.setdefault(sample.question, []).append(sample)
    return found


def _as_original(side: Questions) -> Questions:
    return {question: [sample.as_original() for sample in samples] for question, samples in side.items()}


def _answered(side: Questions, shared: list[str]) -> Iterator[EvalSample]:
    return (sample for question in shared for sample in side[question] if sample.standing != "failed")


def _scores(left: Questions, right: Questions, shared: list[str]) -> list[list[list[float]]]:
    """Side → question → repeats."""
    return [[[sample.score for sample in side[question]] for question in shared] for side in (left, right)]


def _read_alike(left: Questions, right: Questions, shared: list[str]) -> tuple[Questions, Questions, tuple[str, ...]]:
    """Both sides with the grades of one grader, and which it is where the eval has two."""
    graders = {sample.original_score is not None for side in (left, right) for sample in _answered(side, shared)}
    originals = _as_original(left), _as_original(right)
    if len(graders) > 1:  # one side's samples are of an earlier version, which asked the original's grader alone
        return *originals, ("graded as the eval's original does: one side has no other grade",)
    if graders != {True}:
        return left, right, ()
    base, candidate = (mean(map(mean, side)) for side in _scores(*originals, shared))
    differ = sum(sample.graders_differ for side in (left, right) for sample in _answered(side, shared))
    note = f"graded by a careful reader; the original's grader says {100 * (candidate - base):+.2f} points and takes another answer in {differ}"
    return left, right, (note,)


def _notes(left: Questions, right: Questions, shared: list[str]) -> list[str]:
    notes = []
    if left_out := len(left) + len(right) - 2 * len(shared):
        notes.append(f"{left_out} questions of one side only left out")
    if any(left[question][0].prompt != right[question][0].prompt for question in shared):
        notes.append("the prompts differ (other examples or settings)")
    failed = sum(sample.standing == "failed" for side in (left, right) for q in shared for sample in side[q])
    if failed:
        notes.append(f"{failed} failed requests count as wrong")
    return notes
