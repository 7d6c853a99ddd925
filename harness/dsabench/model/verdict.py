"""The result of every comparison of two sides."""

from __future__ import annotations

from typing import Literal

from dsabench.model.value import Value

BOOTS_MIN = 3
"""Boots a side that a verdict or an interval takes, so that a confirmation is first looked at with so many. Two may agree by chance, and
then show no spread: where boots come in two modes, two pairs did so in one of eight studies.
"""

ABLATE_BOOTS_MIN = BOOTS_MIN + 1
"""The same where several settings are held against the same boots of one: where boots come in two modes, three of them say too often that
one of the settings differs (tests/calibration.py).
"""

VerdictWord = Literal["better", "worse", "differs", "no difference", "inconclusive"]
"""`differs`: the metric has no better direction."""


class Verdict(Value):
    """Candidate compared with base in one metric of one workload. Effects are relative: 0.05 is 5 % more than the
    base.

    Effects of an eval's score are in `points`, shares of 1: 0.05 is five points more.
    """

    metric: str
    workload: str
    trial: str | None = None
    """The trial's id if both sides measured the same one; None if they have different settings."""
    environment: str | None = None
    """The fingerprint, if the sides were paired within environments."""
    arm: str | None = None
    """The folder below both sides that holds the records, if they were compared folder by folder."""
    verdict: VerdictWord
    unit: Literal["relative", "points"] = "relative"
    effect: float | None = None
    ci_low: float | None = None
    ci_high: float | None = None
    mde: float | None = None
    """The smallest relative increase that this number of boots with this spread detects with 80 % power at the 5 %
    level. `detectable` has the decrease too.
    """
    n_base: int
    """Boots of the base; for an eval, questions."""
    n_candidate: int
    boots_needed: int | None = None
    """Boots per side that would show the effect of an inconclusive verdict; None if it is decided or no number would."""
    reason: str
    """One line: the reason for the verdict, and what would decide an inconclusive one."""

    @property
    def is_refusal(self) -> bool:
        """Whether a gate does not let the candidate pass: it is worse, or nobody can tell."""
        return self.verdict in ("worse", "inconclusive")

    @property
    def detectable(self) -> tuple[float, float] | None:
        """The smallest detectable decrease and increase. Smaller differences may stay unseen.

        Effects are ratios, so a doubling (+100 %) and a halving (-50 %) are equally hard to detect. Points are
        differences.
        """
        if self.mde is None:
            return None
        return (-self.mde if self.unit == "points" else -self.mde / (1.0 + self.mde)), self.mde

    @property
    def detectable_beside_effect(self) -> float | None:
        """The detectable difference with the sign of the effect, to compare the effect with."""
        return None if self.detectable is None else self.detectable[(self.effect or 0.0) >= 0.0]
