"""The winner beside itself without each of its changes: which go, which stay, and what is confirmed in the end."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from dsabench.cli.show_result import print_result, result_facts, say_what_it_needs
from dsabench.config.specs import StudyConfig
from dsabench.model.record import Failed
from dsabench.model.runtime import RuntimeSpec
from dsabench.model.study_result import Finalist, StudyResult, WorkLeft
from dsabench.reporting.site.entry import Entry
from dsabench.reporting.site.study import Study as Site
from dsabench.results.ablation import ablation_of, changes_of
from dsabench.results.study_records import StudyRecords
from dsabench.study.ablation import (
    ablation_boots_left,
    index_of_reduced,
    next_ablation_boot,
    reduced_setting,
    winner_of,
)
from dsabench.study.next_boot import (
    BootPlan,
    challenger,
    next_baseline_boot,
    next_confirm_boot,
    next_search_boot,
)
from dsabench.study.plan import has_next_boot
from dsabench.study.proposers import make_proposer
from dsabench.study.study import Study
from dsabench.study.verdict import conclude
from factories import ENVIRONMENT, make_failure
from studies import STUDY, boot_records, load_study, make_context

FOUR_AXES = (
    STUDY.replace(
        "axes: {prefill_backend: [flashmla_kv, flashmla_sparse], chunked_prefill_size: [128, 256]}",
        "axes: {prefill_backend: [flashmla_kv, flashmla_sparse], chunked_prefill_size: [128, 256], "
        "max_running_requests: [8, 16], mha_threshold_tokens: [128, 512]}",
    )
    .replace("chunked_prefill_size: 256}\n", "chunked_prefill_size: 256, max_running_requests: 8, mha_threshold_tokens: 128}\n")
    .replace("max_trials: 6, confirm_boots: 2", "confirm_boots: 3, ablate: true")
)  # fmt: skip
SPARSE, CHUNK, RUNNING, THRESHOLD = (
    "prefill_backend=flashmla_sparse",
    "chunked_prefill_size=128",
    "max_running_requests=16",
    "mha_threshold_tokens=512",
)

Speed = Callable[[set[str]], float]
"""Changes of a setting → its speed."""


class Machine:
    """Boots settings whose speed is a function of their changes, in the order in which a study asks for them."""

    def __init__(self, folder: Path, speed: Speed, *, text: str = FOUR_AXES, noise: float = 0.001) -> None:
        self.config: StudyConfig = load_study(folder, text)
        self.records = StudyRecords(self.config, ENVIRONMENT.fingerprint, ())
        self.fails: set[str] = set()
        self._speed, self._rng, self._minute, self._noise = speed, random.Random(5), 0, noise
        self.folder = folder

    def boot(self, plan: BootPlan) -> None:
        self._minute += 1
        changes = set(plan.spec.changes(self.config.default).split())
        value = self._speed(changes) * self._rng.lognormvariate(0.0, self._noise)
        fails = bool(self.fails) and self.fails.isdisjoint(changes) and changes != {"default"}
        for record in boot_records(plan, self.records, f"boot-{self._minute}", value, self._minute):
            self.records.add(record.model_copy(update={"outcome": make_failure()}) if fails else record)

    def search_and_confirm(self) -> Finalist:
        proposer = make_proposer(self.config)
        while (plan := next_baseline_boot(self.records, 0) or next_search_boot(self.records, 0, proposer)) is not None:
            self.boot(plan)
        best = challenger(self.records, 0)
        assert best is not None
        self.confirm(best.spec, 0)
        return Finalist(best, 0)

    def confirm(self, spec: RuntimeSpec, index: int) -> None:
        while (plan := next_confirm_boot(self.records, 0, spec, index)) is not None:
            self.boot(plan)

    def ablate(self, winner: Finalist) -> list[str]:
        """Who was booted, in order."""
        booted = []
        while (plan := next_ablation_boot(self.records, 0, winner.candidate.spec)) is not None:
            booted.append(plan.label)
            self.boot(plan)
        return booted

    def finish(self, winner: Finalist) -> StudyResult:
        """Confirm what remains, if anything goes, and conclude."""
        reduced = ablation_of(self.records, winner.candidate.spec, 0).reduced
        finalists = [winner]
        if reduced is not None:
            index = index_of_reduced(self.config)
            self.confirm(reduced, index)
            finalists.append(Finalist(reduced_setting(self.records, reduced, 0), index))
        return conclude(self.records, make_context(self.config, self.folder / "r", self.records.records), finalists)


def test_the_site_says_the_same(tmp_path: Path) -> None:
    machine = Machine(tmp_path, lambda changes: one_of_four(changes) * (1.012 if THRESHOLD in changes else 1.0))
    winner = machine.search_and_confirm()
    machine.ablate(winner)
    result = machine.finish(winner)
    found = result.ablation
    assert found is not None
    assert result.best is not None
    entries = tuple(Entry(record, tmp_path / "journal.jsonl", f"{i}.html") for i, record in enumerate(result.records))
    site = Site("study", "study", entries, machine.config, "output_throughput_tok_s")
    assert site.ablation == found
    assert site.best is not None
    assert site.best.spec == result.best.spec
    assert [one.effect for one in site.verdicts] == [one.effect for one in result.verdicts]
    # A config of the same name with other axes says nothing of these records.
    assert Site("study", "study", entries, load_study(tmp_path), "output_throughput_tok_s").ablation is None


def test_the_terminal_tells_each_change_and_what_is_left(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    machine = Machine(tmp_path, lambda changes: one_of_four(changes) * (1.012 if THRESHOLD in changes else 1.0))
    winner = machine.search_and_confirm()
    config, journal = machine.config, tmp_path / "journal.jsonl"
    study = Study(config, tmp_path)
    before = conclude(machine.records, make_context(config, tmp_path / "before", machine.records.records), [winner])
    say_what_it_needs(study, replace(before, left=WorkLeft(), ablation=None), "dsabench sweep x --ablate")
    changes = len(changes_of(config, winner.candidate.spec))
    said = capsys.readouterr().out
    assert said.startswith(f"It has {changes} changes.")
    assert f"{4 * (changes + 1)} boots" in said
    machine._speed = one_of_four  # the threshold's little more was luck
    machine.ablate(winner)
    result = machine.finish(winner)
    assert result.ablation is not None
    print_result(Console(width=80), config, journal, result, None)
    said = capsys.readouterr().out
    facts = result_facts(config, journal, result, None)["ablation"]
    assert isinstance(facts, dict)
    for one, fact in zip(result.ablation.changes, facts["changes"], strict=True):
        assert f"{one.change}: {one.decision}; " in said
        assert (fact["change"], fact["decision"], len(fact["verdicts"])) == (one.change, one.decision, 2)
    assert facts["says"].startswith("Without what gives nothing it is ")
    assert " ".join(facts["says"].split()) in " ".join(said.split())
    say_what_it_needs(study, result, "dsabench sweep x --ablate")
    assert capsys.readouterr().out == ""


def one_of_four(changes: set[str]) -> float:
    return 100.0 * (1.2 if SPARSE in changes else 1.0) * (1.02 if CHUNK in changes else 1.0)


def test_changes_that_give_nothing_go_and_the_rest_is_confirmed(tmp_path: Path) -> None:
    machine = Machine(tmp_path, lambda changes: one_of_four(changes) * (1.012 if THRESHOLD in changes else 1.0))
    winner = machine.search_and_confirm()
    assert changes_of(machine.config, winner.candidate.spec)[0].label == SPARSE
    booted = machine.ablate(winner)
    # Each turn has the winner in the middle, and the order turns round.
    sides = len(changes_of(machine.config, winner.candidate.spec)) + 1
    first, second = booted[:sides], booted[sides : 2 * sides]
    assert first[sides // 2 - 1 + sides % 2] == winner.candidate.label
    assert second == first[::-1]
    result = machine.finish(winner)
    found = result.ablation
    assert found is not None
    assert result.best is not None
    decisions = {one.change: one.decision for one in found.changes}
    assert decisions[SPARSE] == decisions[CHUNK] == "kept"
    assert decisions.get(RUNNING, "dropped") == "dropped"
    assert set(result.best.label.split()) >= {SPARSE, CHUNK}
    assert RUNNING not in result.best.label


def test_what_only_seems_to_help_goes_with_the_next_best_of_a_tie(tmp_path: Path) -> None:
    machine = Machine(tmp_path, one_of_four)
    winner = machine.search_and_confirm()
    # Three of four settings of the search are a tie: the one with the fewest changes is confirmed, and needs all of them.
    assert set(winner.candidate.label.split()) == {SPARSE, CHUNK}
    machine.ablate(winner)
    result = machine.finish(winner)
    assert result.ablation is not None
    assert result.best is not None
    assert [one.decision for one in result.ablation.changes] == ["kept", "kept"]
    assert result.ablation.reduced is None
    assert result.best.spec == winner.candidate.spec
    assert not has_next_boot(machine.records, make_context(machine.config, tmp_path / "r", ()).limits)


def either(changes: set[str]) -> float:
    """Either of two changes gives it all; both together look a little better still."""
    helped = SPARSE in changes or CHUNK in changes
    return 100.0 * (1.2 if helped else 1.0) * (1.02 if {SPARSE, CHUNK, RUNNING, THRESHOLD} <= changes else 1.0)


def test_changes_that_do_each_others_work_do_not_go_together(tmp_path: Path) -> None:
    machine = Machine(tmp_path, either)
    everything = machine.config.spec(
        {"prefill_backend": "flashmla_sparse", "chunked_prefill_size": 128, "max_running_requests": 16, "mha_threshold_tokens": 512}
    )  # fmt: skip
    winner = machine.search_and_confirm()
    assert winner.candidate.spec == everything
    # Now the little more turns out to have been luck.
    machine._speed = lambda changes: 120.0 if SPARSE in changes or CHUNK in changes else 100.0
    machine.ablate(winner)
    result = machine.finish(winner)
    found = result.ablation
    assert found is not None
    assert [one.decision for one in found.changes] == ["dropped"] * 4
    # Without all four it would be the default, so only one goes.
    assert found.together is None
    assert found.reduced in [one.without for one in found.changes]


def test_a_pair_that_stands_in_for_each_other_is_found_by_booting_without_both(tmp_path: Path) -> None:
    def speed(changes: set[str]) -> float:
        level = 130.0 if THRESHOLD in changes else 100.0
        return level * (1.2 if SPARSE in changes or CHUNK in changes else 1.0)

    machine = Machine(tmp_path, lambda changes: speed(changes) * (1.02 if {SPARSE, CHUNK} <= changes else 1.0))
    winner = machine.search_and_confirm()
    assert set(winner.candidate.label.split()) == {SPARSE, CHUNK, THRESHOLD}
    machine._speed = speed
    booted = machine.ablate(winner)
    assert booted.count(THRESHOLD) == 4  # without both
    found = machine.finish(winner).ablation
    assert found is not None
    assert {one.change: one.decision for one in found.changes} == {
        SPARSE: "dropped",
        CHUNK: "dropped",
        THRESHOLD: "kept",
    }
    assert {one.verdict for one in found.joint} == {"better"}
    assert found.stays.startswith("better with")
    assert found.reduced in [one.without for one in found.changes if one.decision == "dropped"]


def test_a_change_without_which_nothing_runs_stays_after_one_boot(tmp_path: Path) -> None:
    machine = Machine(tmp_path, lambda changes: one_of_four(changes) * (1.03 if RUNNING in changes else 1.0))
    winner = machine.search_and_confirm()
    assert set(winner.candidate.label.split()) == {SPARSE, CHUNK, RUNNING}
    machine.fails = {SPARSE}
    booted = machine.ablate(winner)
    without = next(one.without for one in changes_of(machine.config, winner.candidate.spec) if one.label == SPARSE)
    assert booted.count(without.changes(machine.config.default)) == 1
    outcomes = machine.records.of_setting(without, "ablate", 0).values()
    assert all(isinstance(record.outcome, Failed) for records in outcomes for record in records)
    found = machine.finish(winner).ablation
    assert found is not None
    of_sparse = next(one for one in found.changes if one.change == SPARSE)
    assert (of_sparse.decision, of_sparse.reason.startswith("without: one: ")) == ("kept", True)


def test_a_winner_that_is_not_proven_is_not_taken_apart(tmp_path: Path) -> None:
    machine = Machine(tmp_path, one_of_four, noise=0.15)
    winner = machine.search_and_confirm()
    assert winner_of(machine.records, 0, [winner]) is None
    assert ablation_boots_left(machine.records, 0, [winner]) == 0
    assert machine.finish(winner).ablation is None or len(winner.candidate.label.split()) == 1


def test_the_boots_left_are_told_and_are_beyond_max_boots(tmp_path: Path) -> None:
    machine = Machine(tmp_path, one_of_four, text=FOUR_AXES.replace("ablate: true", "ablate: true, max_boots: 22"))
    winner = machine.search_and_confirm()
    assert machine.records.boots(0) == 22
    context = make_context(machine.config, tmp_path / "r", ())
    assert ablation_boots_left(machine.records, 0, [winner]) == 12
    assert has_next_boot(machine.records, context.limits)
    assert conclude(machine.records, context, [winner]).left.boots == 12
    machine.ablate(winner)
    assert conclude(machine.records, context, [winner]).left.boots == 0


def test_a_confirmation_that_stopped_early_lacks_nothing_before_the_ablation(tmp_path: Path) -> None:
    stops = FOUR_AXES.replace("confirm_boots: 3", "confirm_boots: 6, stop_when_decided: true")
    machine = Machine(tmp_path, one_of_four, text=stops)
    winner = machine.search_and_confirm()
    assert machine.records.boots(0, "confirm") == 6
    context = make_context(machine.config, tmp_path / "r", ())
    left = conclude(machine.records, context, [winner]).left
    assert (left.confirm_boots, left.ablate_boots) == (0, 12)


def test_an_ablation_that_was_begun_goes_on_without_being_asked_for_again(tmp_path: Path) -> None:
    machine = Machine(tmp_path, one_of_four)
    winner = machine.search_and_confirm()
    plan = next_ablation_boot(machine.records, 0, winner.candidate.spec)
    assert plan is not None
    machine.boot(plan)
    config = load_study(tmp_path, FOUR_AXES.replace(", ablate: true", ""))
    records = StudyRecords(config, ENVIRONMENT.fingerprint, machine.records.records)
    context = make_context(config, tmp_path / "r", ())
    assert conclude(records, context, [winner]).left.ablate_boots == 11
    assert has_next_boot(records, context.limits)
    unasked = StudyRecords(config, ENVIRONMENT.fingerprint, (r for r in records.records if r.phase != "ablate"))
    assert conclude(unasked, context, [winner]).left.boots == 0
    assert conclude(unasked, context, [winner]).ablation is None


@pytest.mark.parametrize(
    ("budget", "wrong"),
    [
        ("confirm_boots: 2, ablate: true", "takes confirm_boots of 3 or more"),
        ("confirm_boots: 3, ablate: true, confirm_first: true", "goes without confirm_first"),
    ],
)
def test_a_config_that_cannot_judge_a_change_is_refused(tmp_path: Path, budget: str, wrong: str) -> None:
    with pytest.raises(Exception, match=wrong):
        load_study(tmp_path, STUDY.replace("max_trials: 6, confirm_boots: 2", budget))
