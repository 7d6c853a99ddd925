"""The committed kernel times: a table is its journal, and what a README says of the pairs is in them."""

from __future__ import annotations

from pathlib import Path

import pytest

import kernel_figures
from dsabench.microbench.measured import read
from dsabench.microbench.table import TABLE_NAME, read_points

RESULTS = Path(__file__).parents[3] / "results/h200"


@pytest.mark.parametrize("folder", ["kernels", "kernels-rest"])
def test_a_committed_table_holds_the_points_of_its_journal_that_have_times(folder, tmp_path):
    (tmp_path / TABLE_NAME).symlink_to(RESULTS / folder / TABLE_NAME)
    timed = {(m.point, m.environment.fingerprint): m.times for m in read(RESULTS / folder) if m.status == "ok"}
    assert {(m.point, m.environment.fingerprint): m.times for m in read_points(tmp_path)} == timed


def test_both_sets_of_pairs_together_put_the_share_told_apart_below_one_in_a_hundred(capsys):
    kernel_figures.shown_pairs([RESULTS / "kernels", RESULTS / "kernels-rest"])
    said = capsys.readouterr().out
    assert said.startswith("2 of 635 pairs told apart: 0.04% to 1.13%; one-sided, at most 0.988%;")
