"""Which setting is the default on a study's page, and what its confirmation lacks."""

from __future__ import annotations

from pathlib import Path

import pytest

from dsabench.reporting.site.entry import Entry
from dsabench.reporting.site.study import Study
from factories import make_record
from studies import STUDY, load_study

TEXT = STUDY.replace("budget: {", "first: [{chunked_prefill_size: 128}]\nbudget: {confirm_first: true, ").replace(
    "confirm_boots: 2", "confirm_boots: 3"
)
METRIC = "output_throughput_tok_s"


@pytest.fixture
def study(tmp_path: Path) -> Study:
    """As `tune hisparse` writes it: every setting has a pinned knob that the config does not name, the default is not first."""
    config = load_study(tmp_path, TEXT)
    settings = (
        ({"chunked_prefill_size": 128}, 100.0, 3),
        ({}, 90.0, 2),
        ({"prefill_backend": "flashmla_sparse"}, 120.0, 2),
    )
    entries = []
    for place, (assignment, value, boots) in enumerate(settings):
        spec = config.spec(assignment)
        pinned = spec.model_copy(update={"knobs": {**spec.knobs, "max_total_tokens": 4096}})
        for workload in config.workloads:
            for number in range(boots + 1):
                record = make_record(
                    spec=pinned, workload=workload, occasion=number, phase="confirm" if number else "search",
                    value=value + number / 10, boot=f"{place}-{number}", minute=3 * number + place,
                )  # fmt: skip
                entries.append(Entry(record, tmp_path / "journal.jsonl", f"{len(entries)}.html"))
    return Study("study", "study", tuple(entries), config, METRIC)


def test_a_knob_that_all_settings_share_does_not_hide_the_default(study: Study) -> None:
    assert study.default_setting.label == "default"
    assert study.default_setting.figure("one", METRIC).value == pytest.approx(90.15)
    assert study.best is not None
    assert study.best.label == "prefill_backend=flashmla_sparse"
    assert {round(verdict.effect or 0, 2) for verdict in study.verdicts} == {0.33}


def test_the_other_baselines_are_held_against_the_best_in_pairs(study: Study) -> None:
    (rival,) = study.rivals
    assert rival.base.label == "chunked_prefill_size=128"
    # Its third boot has no partner yet.
    assert {(verdict.n_base, verdict.n_candidate) for verdict in rival.verdicts} == {(2, 2)}
    assert study.lacking == 2


def test_a_finished_confirmation_lacks_nothing(study: Study, tmp_path: Path) -> None:
    config = load_study(tmp_path, TEXT.replace("confirm_boots: 3", "confirm_boots: 2"))
    assert Study("study", "study", study.entries, config, METRIC).lacking == 0


@pytest.mark.parametrize(("boots", "lacking"), [(2, 8), (3, 0)])
def test_a_confirmation_that_stopped_lacks_nothing_and_says_why(tmp_path: Path, boots: int, lacking: int) -> None:
    config = load_study(tmp_path, STUDY.replace("confirm_boots: 2", "confirm_boots: 6, stop_when_decided: true"))
    entries = [
        Entry(
            make_record(
                spec=config.spec(assignment), workload=workload, occasion=number, phase="confirm" if number else "search",
                value=value + number / 10, boot=f"{place}-{number}", minute=3 * number + place,
            ),
            tmp_path / "journal.jsonl", f"{place}-{number}.html",
        )
        for place, (assignment, value) in enumerate((({}, 90.0), ({"prefill_backend": "flashmla_sparse"}, 120.0)))
        for workload in config.workloads
        for number in range(boots + 1)
    ]  # fmt: skip
    study = Study("study", "study", tuple(entries), config, METRIC)
    assert (study.lacking, study.stopped_early) == (lacking, "decided after 3 of 6 boots a side" if not lacking else "")
    assert {verdict.n_base for verdict in study.verdicts} == {boots}


@pytest.mark.parametrize(("confirmed", "best"), [(140.0, "chunked_prefill_size=128"), (110.0, "prefill_backend")])
def test_of_two_that_were_confirmed_the_page_shows_the_winner(tmp_path: Path, confirmed: float, best: str) -> None:
    """As the sweep itself chooses: by the boots of the confirmation."""
    config = load_study(tmp_path, STUDY.replace("confirm_boots: 2", "confirm_boots: 2, confirm_second: true"))
    settings = (
        ({}, 90.0, 90.0),
        ({"chunked_prefill_size": 128}, 100.0, confirmed),
        ({"prefill_backend": "flashmla_sparse"}, 120.0, 120.0),
    )
    entries = [
        Entry(
            make_record(
                spec=config.spec(assignment), workload=workload, occasion=number,
                phase="confirm" if number else "search", value=(again if number else once) + number / 10,
                boot=f"{place}-{number}", minute=3 * number + place,
            ),
            tmp_path / "journal.jsonl",
            f"{place}-{number}-{workload.name}.html",
        )
        for place, (assignment, once, again) in enumerate(settings)
        for number in range(3)
        for workload in config.workloads
    ]  # fmt: skip
    study = Study("study", "study", tuple(entries), config, METRIC)
    assert study.best is not None
    assert study.best.label.startswith(best)
    assert len(study.rivals) == 1


def test_settings_of_two_machines_are_compared_by_the_default_of_each(tmp_path: Path) -> None:
    """As the sweep itself does: 60 where the default does 45 is more than 110 where it does 90."""
    config = load_study(tmp_path)
    measured = (
        ({}, "a", 90.0),
        ({"chunked_prefill_size": 128}, "a", 110.0),
        ({}, "b", 45.0),
        ({"prefill_backend": "flashmla_sparse"}, "b", 60.0),
    )
    entries = []
    for place, (assignment, machine, value) in enumerate(measured):
        for workload in config.workloads:
            record = make_record(
                spec=config.spec(assignment), workload=workload, value=value, boot=str(place), minute=place,
                occasion=1 if not assignment and machine == "b" else 0,
            )  # fmt: skip
            there = record.environment.model_copy(update={"machine": machine})
            record = record.model_copy(update={"environment": there})
            entries.append(Entry(record, tmp_path / "journal.jsonl", f"{place}-{workload.name}.html"))
    study = Study("study", "study", tuple(entries), config, METRIC)
    assert study.best is not None
    assert study.best.label == "prefill_backend=flashmla_sparse"
    assert study.against_default(study.best) == pytest.approx(60 / 45 - 1)
