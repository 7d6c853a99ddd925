from __future__ import annotations

import pytest

from dsabench.config.specs import SweepConfig
from dsabench.model.record import Record
from dsabench.model.trial import Trial
from dsabench.search.ledger import Ledger, environments
from factories import ENVIRONMENT, make_failure, make_record
from studies import load_study


@pytest.fixture
def config(tmp_path) -> SweepConfig:
    return load_study(tmp_path)


def ledger_of(config: SweepConfig, *records: Record) -> Ledger:
    return Ledger(config, ENVIRONMENT.fingerprint, records)


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
    assert len(ledger_of(config, *records).settled(trial, "search", 0)) == settled


def test_a_boot_counts_once_however_many_trials_it_served(config) -> None:
    one, two = config.workloads
    ledger = ledger_of(
        config,
        make_record(spec=config.default, workload=one, boot="a"),
        make_record(spec=config.default, workload=two, boot="a"),
        make_record(spec=config.default, workload=one, boot="b", occasion=1, phase="confirm"),
        make_record(spec=config.default, workload=one, boot="c", occasion=2, round_=1),
    )
    assert ledger.boots(0) == 2
    assert ledger.latest_round == 1
