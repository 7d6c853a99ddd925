"""What an accuracy gate can decide, worked out before it runs: how often it accepts a setting that is as accurate as the default."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from dsabench.errors import InputError
from dsabench.evals.statistics import ALPHA, acceptance, repeats_for
from dsabench.model.evals import EvalSpec
from dsabench.model.study import GateSpec
from dsabench.stats.distributions import normal_critical, t_critical
from dsabench.stats.power import POWER

INSIDE_SHARE = 2 / 3
"""Of the variance score × (1 - score) of one answer, what lies inside a question: repeats average it out. Two thirds is what
questions give whose difficulties are spread evenly (Miller 2024, "Adding Error Bars to Evals", §3.1)."""
ASSUMED_SCORE = 0.8
"""Where nobody published one."""
REPEATS_MAX = 64
"""Most that are chosen unasked: a pass over GPQA costs a large model a quarter of an hour."""
CHANCE_MIN = 0.1
"""A gate that accepts an equal setting more seldom decides nothing."""


@dataclass(frozen=True, slots=True)
class GatePlan:
    """One gate: questions, passes, margin, and the score that is expected."""

    eval: str
    questions: int
    repeats: int
    margin: float
    score: float
    is_published: bool
    """Whether the score was published for this eval, and not assumed."""
    is_greedy: bool
    """Temperature 0: answers to a question differ by the batch alone, so less than is assumed here."""

    @property
    def noise(self) -> float:
        """Variance of one answer's score inside a question."""
        return INSIDE_SHARE * self.score * (1.0 - self.score)

    @property
    def chance(self) -> float:
        """Of a setting that is as accurate as the default: to be accepted."""
        return acceptance(self.questions, self.repeats, self.margin, self.noise)

    @property
    def best_chance(self) -> float:
        """The same if greedy answers did not differ at all."""
        return acceptance(self.questions, self.repeats, self.margin, 0.0 if self.is_greedy else self.noise)

    @property
    def enough_repeats(self) -> int | None:
        """Fewest passes with 80 %; None where no number helps."""
        return repeats_for(self.questions, self.margin, self.noise)

    @property
    def enough_margin(self) -> float:
        """Smallest margin in tenths of a point that these passes decide with 80 %."""
        error = math.sqrt(2.0 * self.noise / self.repeats / self.questions)
        reach = t_critical(ALPHA, max(self.questions - 1, 1)) + normal_critical(1 - POWER)
        return math.ceil(1000 * reach * error) / 1000

    def line(self) -> str:
        """Such as `gpqa, 198 questions × 4, margin 1 point: accepts an equally accurate setting in 15 of 100 runs; …`."""
        basis = "as published" if self.is_published else "assumed"
        least = "at least " if self.is_greedy else ""
        says = (
            f"{self.eval}, {self.questions} questions × {self.repeats}, margin {_points(self.margin)}: accepts an equally accurate "
            f"setting in {least}{100 * self.chance:.0f} of 100 runs (at a score of {self.score:.2f}, {basis})"
        )
        return says if self.chance >= POWER else f"{says}; for {100 * POWER:.0f} of 100: {self._ways()}"

    def _ways(self) -> str:
        more = self.enough_repeats
        ways = [f"a margin of {_points(self.enough_margin)}"]
        return " or ".join([*([] if more is None else [f"repeat {more}"]), *ways])


def plan_gate(gate: GateSpec, spec: EvalSpec, questions: int) -> GatePlan:
    """The plan of a gate on the score, with as many passes as the config says, or as an equal setting needs to be accepted.

    Raises:
        InputError: more passes than are chosen unasked would be needed, or those that were asked for decide nothing.

    """
    published = [scores["score"] for one in spec.published if "score" in (scores := one.scores)]
    score = published[0] if published else ASSUMED_SCORE
    plan = GatePlan(
        eval=spec.name,
        questions=questions,
        repeats=gate.repeat or 1,
        margin=gate.margin,
        score=min(max(score, 0.02), 0.98),
        is_published=bool(published),
        is_greedy=spec.sampling.temperature == 0.0,
    )
    if gate.repeat is None:
        enough = plan.enough_repeats
        if enough is None or enough > REPEATS_MAX:
            raise InputError(f"gate: repeat is not stated, and {plan.line()}")
        plan = replace(plan, repeats=enough)
    if plan.best_chance < CHANCE_MIN:
        raise InputError(f"gate: this decides nothing: {plan.line()}")
    return plan


def questions_published(spec: EvalSpec) -> int | None:
    """How many questions the eval has, before its data is read; None where nothing says it."""
    known = (one.settings.get("num_questions") for one in spec.published)
    return spec.num_examples or next((int(count) for count in known if isinstance(count, int)), None)


def _points(margin: float) -> str:
    return "1 point" if margin == 0.01 else f"{100 * margin:g} points"
