"""What a sweep is after: objective, budget, proposer, gate."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, PositiveFloat, PositiveInt, model_validator

from dsabench.model.value import Value


class Bound(Value):
    """A limit on one metric; a measurement outside it is infeasible."""

    metric: str
    max: float | None = None
    min: float | None = None

    @model_validator(mode="after")
    def _some_limit(self) -> Bound:
        if self.max is None and self.min is None:
            raise ValueError("needs max or min")
        return self


class Objective(Value):
    """What is optimised. Over several workloads it is the geometric mean."""

    metric: str
    direction: Literal["maximize", "minimize"]
    constraints: tuple[Bound, ...] = ()


class Budget(Value):
    """Where a sweep stops. None sets no limit."""

    max_trials: PositiveInt | None = None
    """Trials of the search; confirmation comes on top."""
    max_boots: PositiveInt | None = None
    """Boots of search and confirmation together; confirm_boots for each side are kept for the confirmation."""
    time_s: PositiveFloat | None = None
    confirm_boots: int = Field(3, ge=0)
    """Boots a side, best against default, interleaved; 0 skips the confirmation."""
    confirm_first: bool = False
    """Confirm the settings of `first` too, in the same turns, and hold the best against each of them."""

    def sides(self, listed: int) -> int:
        """Settings that are confirmed, at most, where `first` lists so many: the best may be one of them."""
        return 2 + (listed if self.confirm_first else 0)


class ProposerSpec(Value):
    """Which strategy proposes the next setting."""

    kind: Literal["grid", "random", "tpe"] = "grid"
    seed: int = 0


class Gate(Value):
    """An accuracy eval that a faster setting must not fail."""

    eval: str
    """A name of evals/, or a file."""
    data: str | None = None
    """The eval's data file; null: fetched once, then cached."""
    measure: Literal["score", "agreement"] = "score"
    """`agreement`: not which answers are right, but which are the default's own, word for word. For models that can answer
    none of the questions, and where a change of answers is itself what matters."""
    margin: float = Field(0.01, gt=0.0, lt=1.0)
    """Largest loss that is accepted, as a share of 1."""
    repeat: PositiveInt = 4
    """Passes over the questions for each of the two settings."""
    finalists: PositiveInt = 3
    """Settings that are confirmed and scored, at most: after one that is less accurate comes the next best."""

    @model_validator(mode="after")
    def _first_pass_is_the_key(self) -> Gate:
        if self.measure == "agreement" and self.repeat < 2:
            raise ValueError(
                "measure agreement needs repeat 2 or more: the first pass of the default is what is agreed with"
            )
        return self
