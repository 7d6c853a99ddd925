"""A measurement beside a printed run: every figure of both, every setting that differs, and no verdict.

A printed run is one run: nothing says how far a second one would have been from it. A difference may be noise, so it is
called neither better nor worse.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dsabench.errors import InputError
from dsabench.reporting.serving_run import FIGURES, ServingRun, Setting

NO_VERDICT = "no verdict: a single run has no spread, so a difference may be noise"


@dataclass(frozen=True, slots=True)
class FigurePair:
    """One figure on both sides; None where a side lacks it."""

    name: str
    base: float | None
    candidate: float | None

    @property
    def change(self) -> float | None:
        """Candidate over base less 1."""
        if self.base is None or self.candidate is None or self.base == 0:
            return None
        return self.candidate / self.base - 1.0


@dataclass(frozen=True, slots=True)
class Difference:
    """A setting that the sides do not share; None where a side does not tell it."""

    setting: str
    base: Setting | None
    candidate: Setting | None


@dataclass(frozen=True, slots=True)
class SideBySide:
    """Two runs."""

    base: ServingRun
    candidate: ServingRun
    figures: tuple[FigurePair, ...]
    differing: tuple[Difference, ...]
    untold: tuple[Difference, ...]
    """Settings that only one side tells: they may differ."""

    def as_json(self) -> dict[str, Any]:
        """For machines: the verdict is null."""
        return {
            "base": self.base.name,
            "candidate": self.candidate.name,
            "verdict": None,
            "reason": NO_VERDICT,
            "boots": {"base": self.base.boots, "candidate": self.candidate.boots},
            "figures": {
                pair.name: {"base": pair.base, "candidate": pair.candidate, "change": pair.change}
                for pair in self.figures
            },
            "differing": _as_json(self.differing),
            "untold": _as_json(self.untold),
            "notes": [*self.base.notes, *self.candidate.notes],
        }


def hold_beside(base: ServingRun, candidate: ServingRun, metrics: Sequence[str] = ()) -> SideBySide:
    """Figures that a side has, in bench_serving's order; `metrics` keeps some of them, under its names or ours.

    Raises:
        InputError: a metric that neither side has.

    """
    wanted = {
        theirs for theirs, ours in FIGURES.items() if not metrics or theirs in metrics or (ours and ours in metrics)
    }
    names = [name for name in FIGURES if name in wanted and (name in base.figures or name in candidate.figures)]
    if not names:
        raise InputError(f"{base.name} and {candidate.name} have none of the metrics {', '.join(metrics)}")
    pairs = tuple(FigurePair(name, base.figures.get(name), candidate.figures.get(name)) for name in names)
    settings = list(dict.fromkeys([*base.settings, *candidate.settings]))
    found = [Difference(name, base.settings.get(name), candidate.settings.get(name)) for name in settings]
    told = [one for one in found if one.base is not None and one.candidate is not None]
    return SideBySide(
        base,
        candidate,
        pairs,
        differing=tuple(one for one in told if not _equal(one.base, one.candidate)),
        untold=tuple(one for one in found if one not in told),
    )


def _equal(left: Setting | None, right: Setting | None) -> bool:
    """Models by their last part, accelerators by the word within the driver's name (`NVIDIA B200`), letter case aside."""
    if isinstance(left, str) and isinstance(right, str):
        one, other = (text.rstrip("/").rpartition("/")[2].lower() for text in (left, right))
        return one == other or bool({one} & set(other.split())) or bool({other} & set(one.split()))
    return left == right


def _as_json(differences: Sequence[Difference]) -> Mapping[str, Any]:
    return {one.setting: {"base": one.base, "candidate": one.candidate} for one in differences}
