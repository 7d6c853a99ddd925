"""What a budget leaves room for: a verdict, before all else."""

from __future__ import annotations

import time
from datetime import timedelta
from pathlib import Path

from dsabench.config.specs import StudyConfig
from dsabench.model.record import Record
from dsabench.model.runtime import refuse_nothing
from dsabench.results.study_records import StudyRecords
from dsabench.study.budget import RunLimits, estimate_cost, why_confirmation_stops, why_search_stops
from dsabench.study.next_boot import choose_finalist, next_baseline_boot, next_confirm_boot, next_search_boot
from dsabench.study.plan import make_plan
from dsabench.study.proposers import make_proposer
from dsabench.study.space_check import check_space
from factories import ENVIRONMENT, START, make_failure, make_record
from studies import STUDY, boot_records, load_study


class Run:
    """A study on a clock of its own: every boot takes as long as it is told."""

    def __init__(self, config: StudyConfig, boot_s: float, trial_s: float = 3.0) -> None:
        self.config, self.boot_s, self.trial_s = config, boot_s, trial_s
        self.elapsed_s = 0.0
        self.records: list[Record] = []
        self.taken: list[str] = []

    @property
    def limits(self) -> RunLimits:
        """Those of now."""
        return RunLimits(self.config.budget, 0, started_s=time.monotonic() - self.elapsed_s)

    def look(self) -> StudyRecords:
        return StudyRecords(self.config, ENVIRONMENT.fingerprint, self.records)

    def go(self) -> None:
        """Search, then confirm, as a study does."""
        proposer = make_proposer(self.config)
        while True:
            records = self.look()
            boot = next_baseline_boot(records, 0) or next_search_boot(records, 0, proposer)
            if boot is None or why_search_stops(records, self.limits) is not None:
                break
            self._take(boot, records)
        if (best := choose_finalist(self.look(), 0)) is None:
            return
        while (boot := next_confirm_boot(self.look(), 0, best.spec)) is not None:
            if why_confirmation_stops(self.look(), self.limits) is not None:
                break
            self._take(boot, self.look())

    def _take(self, boot, records: StudyRecords) -> None:
        started = START + timedelta(seconds=self.elapsed_s + self.boot_s)
        for record in boot_records(boot, records, f"boot-{len(self.taken)}", 100.0 + len(self.taken)):
            changes = {"started_at": started, "boot_s": self.boot_s, "duration_s": self.trial_s}
            self.records.append(record.model_copy(update=changes))
            started += timedelta(seconds=self.trial_s)
        self.elapsed_s += self.boot_s + len(boot.workloads) * self.trial_s
        self.taken.append(boot.phase)


def study(folder: Path, time_s: float) -> StudyConfig:
    return load_study(folder, STUDY.replace("max_trials: 6, confirm_boots: 2", f"time_s: {time_s}, confirm_boots: 3"))


def test_a_machine_with_fast_boots_searches_all_and_confirms_all(tmp_path: Path) -> None:
    run = Run(study(tmp_path, 300.0), boot_s=2.0)
    run.go()
    assert (run.taken.count("search"), run.taken.count("confirm")) == (4, 6)


def test_slower_boots_leave_fewer_settings_and_a_whole_confirmation(tmp_path: Path) -> None:
    run = Run(study(tmp_path, 300.0), boot_s=22.0)
    run.go()
    assert (run.taken.count("search"), run.taken.count("confirm")) == (4, 6)
    slower = Run(study(tmp_path, 300.0), boot_s=30.0)
    slower.go()
    assert (slower.taken.count("search"), slower.taken.count("confirm")) == (2, 6)
    assert why_search_stops(slower.look(), slower.limits) == "the time is needed for the confirmation (300 s in all)"


def test_very_slow_boots_still_end_with_best_against_default(tmp_path: Path) -> None:
    """45 s a boot: the default and one other are searched, and confirmed with as many boots as fit, at least two a side."""
    run = Run(study(tmp_path, 300.0), boot_s=45.0)
    run.go()
    assert (run.taken.count("search"), run.taken.count("confirm")) == (2, 4)
    sides = {record.trial.runtime.id: set() for record in run.records}
    for record in run.records:
        if record.phase == "confirm":
            sides[record.trial.runtime.id].add(record.boot)
    assert sorted(map(len, sides.values())) == [2, 2]


def test_the_forecast_is_that_of_the_boots_that_were_measured(tmp_path: Path) -> None:
    config = study(tmp_path, 300.0)
    run, space = Run(config, boot_s=45.0), check_space(config, refuse_nothing)
    before = make_plan(run.look(), run.limits, space)
    assert (before.search_boots, before.confirm_boots, before.cost.measured) == (4, 6, False)
    assert before.seconds_left == before.cost.of(10, 20), "assumed, but told from the first second on"
    run._take(next_baseline_boot(run.look(), 0), run.look())
    after = make_plan(run.look(), run.limits, space)
    assert estimate_cost(run.look()).boot_s == 45.0
    assert (after.search_boots, after.boots_total) == (2, 8)
    assert 240.0 < after.seconds_left <= 249.0, "no longer than the budget has"


def test_without_a_confirmation_the_search_has_all_of_the_time(tmp_path: Path) -> None:
    text = STUDY.replace("max_trials: 6, confirm_boots: 2", "time_s: 170, confirm_boots: 0")
    run = Run(load_study(tmp_path, text), boot_s=45.0)
    run.go()
    assert run.taken == ["search"] * 3


def test_the_same_crash_of_every_setting_is_the_installations_fault(tmp_path: Path) -> None:
    config = load_study(tmp_path, STUDY.replace("max_trials: 6, confirm_boots: 2", "confirm_boots: 0"))
    proposer, records = make_proposer(config), list[Record]()

    def fail(message: str) -> str | None:
        seen = StudyRecords(config, ENVIRONMENT.fingerprint, records)
        boot = next_baseline_boot(seen, 0) or next_search_boot(seen, 0, proposer)
        assert boot is not None
        outcome = make_failure().model_copy(update={"message": message})
        records.extend(make_record(spec=boot.spec, workload=one, outcome=outcome) for one in boot.workloads)
        return why_search_stops(StudyRecords(config, ENVIRONMENT.fingerprint, records), RunLimits(config.budget, 0))

    assert fail("AttributeError: no shape at 0x7f01, rank 0") is None
    assert fail("AttributeError: no shape at 0x7f02, rank 1") is None
    said = fail("AttributeError: no shape at 0x7f03, rank 2")
    assert said is not None
    assert said.startswith("every setting failed in the same way, which points to the installation (exited: Attr")
    assert fail("ValueError: another") is None
