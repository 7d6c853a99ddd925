"""The one schema in which two sides are held against each other, wherever that happens."""

from __future__ import annotations

from typing import Literal

from dsabench.model.value import Value

VerdictWord = Literal["better", "worse", "differs", "no difference", "inconclusive"]
"""`differs`: of a metric of which neither more nor less is better."""


class Verdict(Value):
    """Candidate against base in one metric of one workload. Effects are relative: 0.05 is 5 % more than the base.

    Those of an eval's score are in `points`, shares of 1: 0.05 is five points more.
    """

    metric: str
    workload: str
    trial: str | None = None
    """The trial's id where both sides measured the same one; None where the sides differ in their settings."""
    environment: str | None = None
    """The fingerprint, where pairs were made within environments."""
    arm: str | None = None
    """The folder below both sides that holds the records, where they were compared folder by folder."""
    verdict: VerdictWord
    unit: Literal["relative", "points"] = "relative"
    effect: float | None = None
    ci_low: float | None = None
    ci_high: float | None = None
    mde: float | None = None
    """Smallest relative effect that this many boots with this spread show with 80 % power at the 5 % level, as an increase;
    `detectable` has the decrease too."""
    n_base: int
    """Boots of the base; of an eval, questions."""
    n_candidate: int
    reason: str
    """One line: why this verdict, and what would decide an inconclusive one."""

    @property
    def detectable(self) -> tuple[float, float] | None:
        """The largest decrease and the smallest increase that are just detectable; what lies between may go unseen.

        Effects are ratios, so twice as much is as far from equal as half as much: +100 % and -50 %. Points are a difference.
        """
        if self.mde is None:
            return None
        return (-self.mde if self.unit == "points" else -self.mde / (1.0 + self.mde)), self.mde

    @property
    def detectable_beside_effect(self) -> float | None:
        """The one of both on the effect's side of 0: what the effect is to be held against."""
        return None if self.detectable is None else self.detectable[(self.effect or 0.0) >= 0.0]
