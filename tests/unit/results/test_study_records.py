from __future__ import annotations

import pytest

from dsabench.config.specs import StudyConfig
from dsabench.model.record import Record, Trial
from dsabench.results.study_records import BootReservation, ReservedTrial, StudyRecords, environments
from dsabench.study.budget import RunLimits, why_search_stops
from factories import ENVIRONMENT, make_failure, make_record
from studies import STUDY, load_study


@pytest.fixture
def config(tmp_path) -> StudyConfig:
    return load_study(tmp_path)


def ledger_of(config: StudyConfig, *records: Record) -> StudyRecords:
    return StudyRecords(config, ENVIRONMENT.fingerprint, records)


def test_only_records_that_the_config_could_have_made_belong_to_it(config) -> None:
    first = config.workloads[0]
    mine = make_record(spec=config.spec({"chunked_prefill_size": 128}), workload=first)
    foreign = [
        make_record(spec=config.spec({"chunked_prefill_size": 64}), workload=first),
        make_record(spec=config.spec({"max_running_requests": 3}), workload=first),
        make_record(spec=config.default, workload=first.model_copy(update={"seed": 99})),
    ]
    elsewhere = ENVIRONMENT.model_copy(update={"fingerprint": "another machine"})
    foreign.append(mine.model_copy(update={"environment": elsewhere}))
    assert ledger_of(config, mine, *foreign).records == (mine,)


def test_environments_are_those_of_the_study_the_latest_last(config) -> None:
    mine = make_record(spec=config.default, workload=config.workloads[0])
    elsewhere, foreign = (ENVIRONMENT.model_copy(update={"fingerprint": name}) for name in ("elsewhere", "foreign"))
    there = mine.model_copy(update={"environment": elsewhere})
    other = make_record(spec=config.spec({"max_running_requests": 3})).model_copy(update={"environment": foreign})
    assert [one.fingerprint for one in environments(config, [there, mine, other])] == [
        "elsewhere",
        mine.environment.fingerprint,
    ]
    assert environments(config, [mine, there, mine])[-1] == ENVIRONMENT
    assert environments(config, [other]) == []


def test_missing_workloads_and_next_occasions(config) -> None:
    one, two = config.workloads
    ledger = ledger_of(config, make_record(spec=config.default, workload=one))
    assert ledger.missing(config.default, "search", 0) == [two]
    assert ledger.missing(config.default, "confirm", 0) == [one, two]
    assert ledger.next_occasion(Trial(runtime=config.default, workload=one)) == 1
    assert ledger.next_occasion(Trial(runtime=config.default, workload=two)) == 0
    assert ledger.missing(config.default, "search", 1) == [one, two]


@pytest.mark.parametrize(
    ("transient", "settled"),
    [
        ((False,), 1),
        ((True,), 0),
        ((True, False), 1),
        ((True, True), 1),
        ((True, True, True), 1),
        ((False, False), 2),
    ],
)
def test_a_transient_fault_is_tried_once_more_and_no_oftener(config, transient, settled) -> None:
    trial = Trial(runtime=config.default, workload=config.workloads[0])
    records = [
        make_record(spec=config.default, workload=trial.workload, occasion=i, outcome=make_failure(transient=flag))
        for i, flag in enumerate(transient)
    ]
    assert len(ledger_of(config, *records).settled(trial.id, "search", 0)) == settled


def test_a_boot_counts_once_however_many_trials_it_served(config) -> None:
    one, two = config.workloads
    ledger = ledger_of(
        config,
        make_record(spec=config.default, workload=one, boot="a"),
        make_record(spec=config.default, workload=two, boot="a"),
        make_record(spec=config.default, workload=one, boot="b", occasion=1, phase="confirm"),
        make_record(spec=config.default, workload=two, boot="b", occasion=1, phase="confirm"),
        make_record(spec=config.default, workload=one, boot="c", occasion=2, round_=1),
    )
    assert ledger.boots(0) == 2
    assert ledger.latest_round == 1


class Boots:
    """A journal as boots write it: each records some workloads of a setting, in order."""

    def __init__(self, config: StudyConfig) -> None:
        self.config, self.records, self._began = config, [], 0

    def add(self, spec, *names: str, phase="search", failed: str | None = None, transient: bool = True) -> Boots:
        """`failed` is the workload in which the server died; what follows it is not recorded."""
        self._began += 1
        for name in (*names, *([failed] if failed else [])):
            workload = next(one for one in self.config.workloads if one.name == name)
            occasion = sum(one.trial == Trial(runtime=spec, workload=workload) for one in self.records)
            outcome = make_failure(transient=transient) if name == failed else None
            self.records.append(
                make_record(
                    spec=spec,
                    workload=workload,
                    occasion=occasion,
                    phase=phase,
                    boot=f"boot-{self._began}",
                    outcome=outcome,
                    minute=self._began,
                )
            )
        return self

    def used(self, *bookings: BootReservation) -> int:
        return StudyRecords(self.config, ENVIRONMENT.fingerprint, self.records, bookings).boots(0)


def test_an_interrupted_boot_counts_when_another_has_made_up_for_it(config) -> None:
    spec = config.spec({"chunked_prefill_size": 128})
    boots = Boots(config).add(config.default, "one", "two").add(spec, "one")
    assert boots.used() == 1
    assert boots.add(spec, "two").used() == 2


def test_a_boot_that_failed_counts_whatever_it_recorded(config) -> None:
    boots = Boots(config).add(config.default, failed="one")
    assert boots.used() == 1
    assert boots.add(config.default, "one").used() == 1, "its retry was interrupted"
    assert boots.add(config.default, "two").used() == 2
    spec = config.spec({"chunked_prefill_size": 128})
    assert boots.add(spec, "one", failed="two", transient=False).used() == 3


def test_confirming_boots_count_each_for_itself(config) -> None:
    boots = Boots(config)
    for _ in range(2):
        boots.add(config.default, "one", "two", phase="confirm")
    assert boots.used() == 2
    assert boots.add(config.default, "one", phase="confirm").used() == 2
    assert boots.add(config.default, "two", phase="confirm").used() == 3


def test_a_record_that_was_lost_leaves_its_boot_unfinished_and_no_other(config) -> None:
    boots = Boots(config)
    for _ in range(3):
        boots.add(config.default, "one", "two", phase="confirm")
    lost = next(one for one in boots.records if one.trial.workload.name == "two")
    boots.records.remove(lost)
    assert boots.used() == 2
    assert boots.add(config.default, "two", phase="confirm").used() == 3


def test_a_boot_that_max_trials_cut_short_is_a_finished_one(tmp_path) -> None:
    config = load_study(tmp_path, STUDY.replace("max_trials: 6", "max_trials: 3"))
    boots = Boots(config).add(config.default, "one", "two").add(config.spec({"chunked_prefill_size": 128}), "one")
    assert boots.used() == 2
    longer = config.model_copy(update={"budget": config.budget.model_copy(update={"max_trials": 4})})
    assert StudyRecords(longer, ENVIRONMENT.fingerprint, boots.records).boots(0) == 1


def test_a_boot_under_way_in_another_process_counts_once(config) -> None:
    trials = [Trial(runtime=config.default, workload=workload) for workload in config.workloads]
    booked = tuple(ReservedTrial(trial=trial.id, occasion=0) for trial in trials)
    booking = BootReservation(machine="here", spec=config.default, phase="search", round=0, trials=booked)
    boots = Boots(config)
    assert boots.used(booking) == 1
    assert boots.add(config.default, "one").used(booking) == 1
    assert boots.used() == 0, "it was killed"
    boots.records.append(make_record(spec=config.default, workload=trials[1].workload, boot="boot-1", minute=2))
    assert boots.used(booking) == boots.used() == 1
    failing = Boots(config).add(config.default, failed="one")
    assert failing.used(booking) == 1


def test_a_last_boot_that_was_interrupted_is_repeated_at_the_limit(tmp_path) -> None:
    config = load_study(tmp_path, STUDY.replace("max_trials: 6", "max_boots: 6"))
    spec = config.spec({"chunked_prefill_size": 128})
    boots = Boots(config).add(config.default, "one", "two").add(spec, "one")
    limits = RunLimits(config.budget, 0)
    assert why_search_stops(StudyRecords(config, ENVIRONMENT.fingerprint, boots.records), limits) is None
    boots.add(spec, "two")
    reason = why_search_stops(StudyRecords(config, ENVIRONMENT.fingerprint, boots.records), limits)
    assert "6 boots are the limit" in (reason or "")
