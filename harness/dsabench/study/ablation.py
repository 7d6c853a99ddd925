"""Take the winner apart: which setting, its next boot, and what of it is confirmed in the end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dsabench.config.specs import StudyConfig
from dsabench.model.runtime import RuntimeSpec
from dsabench.model.study_result import Finalist, ScoredSetting, deciding
from dsabench.results.ablation import ablation_of, changes_of, has_gain
from dsabench.results.scores import judge, score_setting, scored_settings
from dsabench.results.study_records import StudyRecords, describe
from dsabench.study.next_boot import BootPlan, boots_in_turns, confirm_boots_left, final_choice


def index_of_reduced(config: StudyConfig) -> int:
    """Number of the reduced winner among the finalists: the one after all that a gate may ask for."""
    return config.finalists


def winner_of(records: StudyRecords, round_: int, finalists: Sequence[Finalist]) -> Finalist | None:
    """The finalist to take apart: proven, and with several changes; None if nobody asked for an ablation.

    One that was begun goes on in a run that does not ask for it.
    """
    if not records.config.budget.ablate and not records.boots(round_, "ablate"):
        return None
    found = final_choice([one for one in finalists if one.index < index_of_reduced(records.config)])
    if found is None or len(changes_of(records.config, found.candidate.spec)) < 2:
        return None
    return None if why_unproven(records, round_, found) else found


def why_unproven(records: StudyRecords, round_: int, one: Finalist) -> str:
    """Why a finalist may not be recommended yet; empty if all its boots are made and show a gain, and no gate refused it."""
    spec = one.candidate.spec
    if confirm_boots_left(records, round_, spec, one.index):
        return "its confirmation lacks boots"
    if one.is_refused and (verdict := deciding(one.accuracy)) is not None:
        return f"the gate did not pass it: {verdict.reason}"
    if not has_gain(records.config.objective, judge(records, spec, round_, one.index).verdicts):
        return "its own boots show no gain over the default"
    return ""


def next_ablation_boot(records: StudyRecords, round_: int, winner: RuntimeSpec) -> BootPlan | None:
    """The next boot of the winner beside itself without each change, then without all that may go; None if complete."""
    return next(_ablation_boots(records, round_, winner), None)


def ablation_boots_left(records: StudyRecords, round_: int, finalists: Sequence[Finalist]) -> int:
    """Boots that the ablation and the confirmation of its outcome lack, as far as the records tell yet."""
    winner = winner_of(records, round_, finalists)
    if winner is None:
        return 0
    if left := sum(1 for _ in _ablation_boots(records, round_, winner.candidate.spec)):
        return left
    reduced = ablation_of(records, winner.candidate.spec, round_).reduced
    return 0 if reduced is None else confirm_boots_left(records, round_, reduced, index_of_reduced(records.config))


def _ablation_boots(records: StudyRecords, round_: int, winner: RuntimeSpec) -> Iterator[BootPlan]:
    boots = records.config.budget.ablate_boots
    found, turns, sides = ablation_of(records, winner, round_), range(boots), list[RuntimeSpec]()
    if open_ := [one.without for one in found.changes if one.decision == "open"]:
        half = len(open_) // 2
        # The winner stands in the middle, as near to each of the others as can be.
        sides = [*open_[:half], winner, *open_[half:]]
    elif not found.is_complete and found.together is not None:
        sides, turns = [found.together, winner], range(boots, 2 * boots)
    yield from (boot for _, boot in boots_in_turns(records, round_, "ablate", [(one, turns) for one in sides], turns))


def reduced_setting(records: StudyRecords, spec: RuntimeSpec, round_: int) -> ScoredSetting:
    """The reduced winner with its score: of the search if that tried it, else of its first confirmed boot."""
    searched = next((one for one in scored_settings(records, round_) if one.spec == spec), None)
    if searched is not None:
        return searched
    confirmed = records.of_setting(spec, "confirm", round_)
    return ScoredSetting(spec, describe(records, spec), score_setting(records.config.objective, confirmed))
