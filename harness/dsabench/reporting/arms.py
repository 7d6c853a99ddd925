"""Two places of results held against each other folder by folder.

Folders may hold the same trials in the same environment and still differ: a patched runtime, a table laid beside it. Their
boots are no repeats of each other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dsabench.errors import InputError
from dsabench.model.record import Record
from dsabench.model.verdict import Verdict
from dsabench.reporting.comparison import ComparedPair, ComparedSide, contrasts, judged
from dsabench.stats.compare import BootComparison
from dsabench.stats.occasions import NO_VERDICT, ApartOptions


@dataclass(frozen=True, slots=True)
class Place:
    """What the user named, and the records in each folder below it."""

    name: str
    folders: Mapping[str, tuple[Record, ...]]

    @property
    def records(self) -> tuple[Record, ...]:
        """Of all folders."""
        return tuple(record for records in self.folders.values() for record in records)


def without_shared(base: Place, candidate: Place) -> Place:
    """The candidate without the records that are the base's as well, or copies of them: what was measured since, which may be
    nothing.
    """
    known = {(record.key, record.boot) for record in base.records}
    numbers = {record.numbers for record in base.records} - {None}
    new = {
        folder: kept
        for folder, records in candidate.folders.items()
        if (kept := tuple(r for r in records if (r.key, r.boot) not in known and r.numbers not in numbers))
    }
    return Place(candidate.name, new)


@dataclass(frozen=True, slots=True)
class PlaceComparison:
    """Verdicts of one family, and whether their boots took turns."""

    verdicts: tuple[Verdict, ...]
    interleaved: tuple[bool, ...]
    """Of each verdict."""

    @property
    def pairs(self) -> int:
        """Pairs of boots in turns, of the verdict that has the most."""
        found = zip(self.verdicts, self.interleaved, strict=True)
        return max((min(v.n_base, v.n_candidate) for v, turns in found if turns), default=0)

    @property
    def headline(self) -> str:
        """One line: whether the boots took turns."""
        turns, count = sum(self.interleaved), len(self.interleaved)
        if turns == count:
            return f"interleaved: {self.pairs} pair{'s' * (self.pairs != 1)} of boots in turns"
        if turns:
            return f"partly interleaved: in {turns} of {count} comparisons the boots took turns"
        return "not interleaved: the boots did not take turns, so drift of the machine counts as well"

    @property
    def refusal(self) -> str | None:
        """Why nothing can be judged; None where something can."""
        if any(one.ci_low is not None or one.verdict != "inconclusive" for one in self.verdicts):
            return None
        reasons = Counter(verdict.reason for verdict in self.verdicts)
        return f"nothing can be judged: {reasons.most_common(1)[0][0]}; {self._way_out}"

    @property
    def _way_out(self) -> str:
        if any(self.interleaved):
            return "dsabench sweep CONFIG --confirm-boots N boots more"
        return (
            "boots in turns decide it (dsabench ci CONFIG --in-turns or --against, or the confirmation of dsabench sweep), and "
            "--not-interleaved judges by the drift between occasions of one setting"
        )


def compare_places(
    base: Place,
    candidate: Place,
    metrics: Sequence[str],
    *,
    across: bool = False,
    apart: ApartOptions = NO_VERDICT,
) -> PlaceComparison:
    """Verdicts as of `compare_sides`, one family over all folders.

    Raises:
        InputError: nothing to compare, or no environment is on both sides.

    """
    asked: list[tuple[ComparedPair, BootComparison]] = []
    names: list[str | None] = []
    trouble: InputError | None = None
    for folder, left, right in _arms(base, candidate):
        try:
            found = contrasts(left, right, metrics, across=across, apart=apart)
        except InputError as error:  # a folder that lacks a counterpart is left out where others have one
            trouble = trouble or error
            continue
        asked += found
        names += [folder] * len(found)
    if trouble is not None and not asked:
        raise trouble
    verdicts = judged(asked)
    named = tuple(v.model_copy(update={"arm": name}) for v, name in zip(verdicts, names, strict=True))
    return PlaceComparison(named, tuple(one.question.paired for _, one in asked))


def _arms(base: Place, candidate: Place) -> list[tuple[str | None, ComparedSide, ComparedSide]]:
    """Folders that both have; what only one has against what only the other has; or all against all."""
    shared = [folder for folder in base.folders if folder in candidate.folders]
    if not shared or len(base.folders) == len(candidate.folders) == 1:
        return [(None, ComparedSide(base.name, base.records), ComparedSide(candidate.name, candidate.records))]
    arms: list[tuple[str | None, ComparedSide, ComparedSide]] = [
        (folder, ComparedSide(base.name, base.folders[folder]), ComparedSide(candidate.name, candidate.folders[folder]))
        for folder in shared
    ]
    rests = [
        ComparedSide(
            place.name, tuple(r for folder, records in place.folders.items() if folder not in shared for r in records)
        )
        for place in (base, candidate)
    ]
    if all(rest.records for rest in rests):
        arms.append((None, rests[0], rests[1]))
    return arms
