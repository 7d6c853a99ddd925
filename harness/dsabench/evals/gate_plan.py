"""What an accuracy gate can decide, worked out before it runs: how often it accepts a setting that is as accurate as the default."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from dsabench.errors import InputError
from dsabench.evals.compare import in_points
from dsabench.evals.published import short_name
from dsabench.evals.statistics import acceptance, decidable_margin, fewest_repeats
from dsabench.model.evals import EvalSpec
from dsabench.model.study import GateSpec
from dsabench.stats.power import POWER

INSIDE_SHARE = 2 / 3
"""Of the variance score × (1 - score) of one answer, what lies inside a question: repeats average it out. Two thirds is what
questions give whose difficulties are spread evenly (Miller 2024, "Adding Error Bars to Evals", §3.1)."""
ASSUMED_SCORE = 0.8
"""Where nobody published one."""
CHOSEN_MAX = 64
"""Most repeats that are chosen unasked: a pass over GPQA costs a large model a quarter of an hour."""
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
        """Variance inside a question of the difference between one answer of each setting."""
        return 2.0 * INSIDE_SHARE * self.score * (1.0 - self.score)

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
        return fewest_repeats(self.questions, self.margin, self.noise)

    @property
    def enough_margin(self) -> float:
        """Smallest margin in tenths of a point that these passes decide with 80 %."""
        return math.ceil(1000 * decidable_margin(self.questions, self.noise / self.repeats)) / 1000

    def line(self) -> str:
        """Such as `gpqa, 198 questions × 4, margin 1 point: accepts an equally accurate setting in 15 of 100 runs; …`."""
        basis = "as published" if self.is_published else "assumed"
        least = "at least " if self.is_greedy else ""
        says = (
            f"{self.eval}, {self.questions} questions × {self.repeats}, margin {in_points(self.margin)}: accepts an equally accurate "
            f"setting in {least}{100 * self.chance:.0f} of 100 runs (at a score of {self.score:.2f}, {basis})"
        )
        if self.chance >= POWER:
            return says
        more = "" if self.enough_repeats is None else f"repeat {self.enough_repeats} or "
        return f"{says}; for {100 * POWER:.0f} of 100: {more}a margin of {in_points(self.enough_margin)}"


def plan_gate(gate: GateSpec, spec: EvalSpec, questions: int, model: str) -> GatePlan:
    """The plan of a gate on the score, with as many passes as the config says, or as an equal setting needs to be accepted. The score
    is that published for the model, else the first that was published.

    Raises:
        InputError: more passes than are chosen unasked would be needed, or those that were asked for decide nothing.

    """
    scored = [one for one in spec.published if "score" in one.scores]
    own = (one for one in scored if short_name(one.model) == short_name(model))
    published = next(own, next(iter(scored), None))
    score = ASSUMED_SCORE if published is None else published.scores["score"]
    plan = GatePlan(
        eval=spec.name,
        questions=questions,
        repeats=gate.repeat or 1,
        margin=gate.margin,
        score=min(max(score, 0.02), 0.98),
        is_published=published is not None,
        is_greedy=spec.sampling.temperature == 0.0,
    )
    if gate.repeat is None:
        enough = plan.enough_repeats
        if enough is None or enough > CHOSEN_MAX:
            raise InputError(f"gate: repeat is not stated, and {plan.line()}")
        plan = replace(plan, repeats=enough)
    if plan.best_chance < CHANCE_MIN:
        raise InputError(f"gate: this decides nothing: {plan.line()}")
    return plan


def questions_known(spec: EvalSpec) -> int | None:
    """How many questions the eval has, before its data is read; None where nothing says it."""
    if (grid := spec.needle) is not None:
        return len(grid.words) * len(grid.depths) * grid.per_cell
    known = (one.settings.get("num_questions") for one in spec.published)
    counts = (spec.num_examples, spec.forecast.questions, *(count for count in known if isinstance(count, int)))
    return next((int(count) for count in counts if count is not None), None)
