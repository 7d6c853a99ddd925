"""Finalists: settings that are booted against the default, best first, until one is not less accurate than it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace

from dsabench.model.runtime import RuntimeSpec
from dsabench.model.study_result import Finalist, ScoredSetting
from dsabench.model.verdict import Verdict
from dsabench.runtimes.protocol import Server

_UNPROVEN = 1.0
"""Excess over a limit that nothing was measured for; as of a constraint whose metric is absent."""


@dataclass(frozen=True, slots=True)
class AccuracyGate:
    """Whoever can tell whether a setting is as accurate as the default. The search itself knows no eval."""

    margin: float
    """Largest loss that is accepted, as a share of 1."""
    finalists: int
    """How many settings are held against the default, at most."""
    applies: Callable[[RuntimeSpec], bool]
    """Whether the setting may answer otherwise than the default."""
    score: Callable[[RuntimeSpec, Server], Awaitable[None]]
    """Score a setting on a server that runs it, unless this round has scored it."""
    judge: Callable[[RuntimeSpec, bool], Awaitable[Verdict]]
    """Hold the setting's score against the default's; `True` lets it boot a side that has none."""


def chosen(finalists: Sequence[Finalist]) -> Finalist | None:
    """The last, where it is not less accurate; else the best of them, which is then shown as refused."""
    if not finalists:
        return None
    return finalists[0] if finalists[-1].is_less_accurate else finalists[-1]


def constrained(
    found: Sequence[ScoredSetting], finalists: Sequence[Finalist], margin: float
) -> tuple[ScoredSetting, ...]:
    """The candidates with the gate's verdicts as a constraint like any other: what did not pass is not feasible."""
    excess = {
        one.candidate.spec.id: (_excess(one.accuracy, margin), _why_not(one.accuracy))
        for one in finalists
        if one.accuracy is not None and one.accuracy.verdict in ("worse", "inconclusive")
    }
    return tuple(_with(one, *excess[one.spec.id]) if one.spec.id in excess else one for one in found)


def _excess(verdict: Verdict, margin: float) -> float:
    """How far the loss lies beyond the margin, relative to it."""
    if verdict.verdict == "inconclusive" or verdict.effect is None:
        return _UNPROVEN
    return max(-verdict.effect - margin, 0.0) / margin


def _why_not(verdict: Verdict) -> str:
    if verdict.verdict == "inconclusive" or verdict.effect is None:
        return f"accuracy undecided ({verdict.workload})"
    return f"less accurate: {100 * verdict.effect:+.2f} points ({verdict.workload})"


def _with(candidate: ScoredSetting, excess: float, why_not: str) -> ScoredSetting:
    score = replace(candidate.score, violation=candidate.score.violation + excess, why_not=why_not)
    return replace(candidate, score=score)
