"""The picture of a sweep, drawn from committed records."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from matplotlib import rc_context

from dsabench.config.load import load_study
from dsabench.model.verdict import Verdict
from dsabench.reporting.sweep_plot import sweep_figure, window
from dsabench.results.journal import read_journal
from dsabench.results.study_records import StudyRecords
from dsabench.study.verdict import conclude
from studies import make_context

REFERENCE = Path(__file__).parents[3] / "results" / "reference-cpu"


def make_verdict(low: float, effect: float, high: float, mde: float | None) -> Verdict:
    sides = {"n_base": 3, "n_candidate": 3, "reason": ""}
    return Verdict(
        metric="ttft_ms.p90",
        workload="chat",
        verdict="inconclusive",
        effect=effect,
        ci_low=low,
        ci_high=high,
        mde=mde,
        **sides,
    )


def test_no_axis_and_no_band_goes_below_a_decrease_by_all() -> None:
    wide = make_verdict(-0.95, -0.49, 4.12, 18.2)
    assert wide.detectable == pytest.approx((-0.948, 18.2), abs=1e-3)
    low, high = window([wide])
    assert low == -1.0
    assert 4.12 < high < 4.6, "an effect that is not detectable far beyond the intervals does not make the axis longer"


def test_the_axis_holds_every_interval_and_zero() -> None:
    low, high = window([make_verdict(0.63, 0.64, 0.65, 0.01), make_verdict(0.42, 0.43, 0.44, 0.01)])
    assert low < -0.009
    assert high > 0.65
    assert low > -0.1


def test_after_again_verdicts_and_picture_are_of_the_same_boots(tmp_path: Path) -> None:
    config, records = load_study("local"), read_journal(REFERENCE / "journal.jsonl").records
    once_more = [
        one.model_copy(update={"round": 1, "occasion": one.occasion + 10, "boot": f"again-{one.boot}"})
        for one in records
        if one.phase == "search" or one.occasion < 2
    ]
    ledger = StudyRecords(config, records[-1].environment.fingerprint, (*records, *once_more))
    for round_, boots in ((0, 4), (1, 1)):
        result = conclude(ledger, make_context(config, tmp_path, round=round_))
        assert {(verdict.n_base, verdict.n_candidate) for verdict in result.verdicts} == {(boots, boots)}
        figure = sweep_figure(config, result, list(result.candidates))
        search, confirm = (
            sum(len(marks.get_offsets()) for marks in figure.axes[0].collections if marks.get_sizes()[0] == size)
            for size in (36, 26)
        )
        confirmed = [one for one in ledger.records if one.phase == "confirm" and one.round == round_]
        assert (search, confirm) == (len(config.workloads) * len(result.candidates), len(confirmed))
        assert ("local, round 1 alone" in figure.get_suptitle()) == (round_ == 1)


def test_labels_keep_off_the_other_axes_and_the_edge(tmp_path: Path) -> None:
    shutil.copy(REFERENCE / "journal.jsonl", tmp_path)
    config, records = load_study("local"), read_journal(tmp_path / "journal.jsonl").records
    ledger = StudyRecords(config, records[-1].environment.fingerprint, records)
    result = conclude(ledger, make_context(config, tmp_path / "empty"))
    assert len(result.verdicts) == 4
    with rc_context({"font.size": 9}):
        figure = sweep_figure(config, result, list(result.candidates))
        figure.savefig(tmp_path / "sweep.png")
    settings, verdicts = figure.axes
    labels = [label.get_window_extent() for label in verdicts.get_yticklabels()]
    assert min(box.x0 for box in labels) > settings.get_window_extent().x1 + 15
    assert verdicts.xaxis.label.get_window_extent().x1 < figure.bbox.x1
    assert verdicts.get_xlabel().endswith("intervals of 95 to 98.8 % (Holm)")
    for row in settings.get_yticklabels():
        assert row.get_window_extent().x0 >= 0
