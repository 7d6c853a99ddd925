"""How near each candidate is to the fastest and to the floor, over all shapes of an operator, dtype and rank."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from dsabench.kernelbench.records import KernelMeasurement
from dsabench.kernelbench.summary import are_apart

Key = tuple[str, str, str, str]
"""Operator, dtype, rank, candidate."""


@dataclass(frozen=True, slots=True)
class Share:
    """One candidate. Speeds are shares of the fastest candidate's of the same shape in the same environment, its own among
    them: two machines, or two versions of a package, are no race.
    """

    operator: str
    dtype: str
    rank: str
    """Model and heads: `v3.2-h128`."""
    candidate: str
    shapes: int
    compared: int
    """Shapes that another candidate was timed on too; `fastest` and `not_apart` are of these."""
    fastest: int
    """Told apart from all others."""
    not_apart: int
    """Not told apart from the fastest, or the fastest and not told apart from another."""
    of_fastest: float
    """Median; 1 is the fastest everywhere."""
    lowest: float
    times_floor: float
    """Median of time / floor, as everywhere on the page; below 1 where a kernel computes in fp8, say."""
    error: float | None
    """Largest relative error of a row against the exact reference, in the shapes that were timed."""
    sustained: tuple[float, float] | None = None
    """Time of a call back to back over that of a single one, median and highest; None where none ran so."""

    @property
    def line(self) -> str:
        """For a terminal."""
        what = f"{self.operator} {self.dtype} {self.rank} {self.candidate}: "
        floor = f"{self.times_floor:,.1f} times the floor"
        if self.sustained is not None:
            floor += f"; back to back {self.sustained[0]:.2f} times as long, {self.sustained[1]:.2f} at most"
        if not self.compared:
            return f"{what}{self.shapes} shapes, no other candidate; {floor}"
        tied = f", not told apart in {self.not_apart}" if self.not_apart else ""
        speed = f"of the fastest's speed {self.of_fastest:.2f} (lowest {self.lowest:.2f})"
        return f"{what}fastest in {self.fastest} of {self.compared}{tied}; {speed}, {floor}"


def shares(measurements: Iterable[KernelMeasurement]) -> tuple[Share, ...]:
    """Of every candidate that was timed."""
    cases: dict[tuple[str, str, str, str], list[KernelMeasurement]] = defaultdict(list)
    for m in measurements:
        if m.status == "ok" and m.times is not None and m.floor_us is not None:
            cases[m.operator, m.dtype, m.shape_id, m.environment.fingerprint].append(m)
    seen: dict[Key, list[tuple[str, float, float]]] = defaultdict(list)
    errors: dict[Key, float] = {}
    longer: dict[Key, list[float]] = defaultdict(list)
    for (operator, dtype, shape_id, _), members in cases.items():
        for name, about in _of_case(members):
            seen[operator, dtype, rank_of(shape_id), name].append(about)
        for m in members:
            key = operator, dtype, rank_of(shape_id), m.candidate
            if m.rel_err is not None:
                errors[key] = max(m.rel_err, errors.get(key, 0.0))
            if m.sustained_us is not None and m.median_us is not None:
                longer[key].append(m.sustained_us / m.median_us)
    return tuple(_share(key, found, errors.get(key), longer[key]) for key, found in sorted(seen.items()))


def rank_of(shape_id: str) -> str:
    """Model and heads of the rank."""
    return shape_id.partition("-b")[0]


def _of_case(members: Sequence[KernelMeasurement]) -> list[tuple[str, tuple[str, float, float]]]:
    """(candidate, (verdict, of the fastest, times the floor)) of one shape."""
    timed = sorted(((m, times) for m in members if (times := m.times)), key=lambda both: both[1].median_us)
    best = timed[0][1]
    tied = {m.candidate for m, times in timed[1:] if not are_apart(best, times)}
    found = []
    for m, times in timed:
        is_best = times is best
        verdict = "tied" if m.candidate in tied or (is_best and tied) else "fastest" if is_best else "slower"
        verdict = verdict if len(timed) > 1 else "alone"
        found.append(
            (
                m.candidate,
                (verdict, best.median_us / times.median_us, times.median_us / (m.floor_us or times.median_us)),
            )
        )
    return found


def _share(key: Key, found: Sequence[tuple[str, float, float]], error: float | None, longer: Sequence[float]) -> Share:
    verdicts = [verdict for verdict, _, _ in found]
    speeds = [speed for _, speed, _ in found]
    return Share(
        *key,
        shapes=len(found),
        compared=len(found) - verdicts.count("alone"),
        fastest=verdicts.count("fastest"),
        not_apart=verdicts.count("tied"),
        of_fastest=median(speeds),
        lowest=min(speeds),
        times_floor=median(floor for _, _, floor in found),
        error=error,
        sustained=(median(longer), max(longer)) if longer else None,
    )
