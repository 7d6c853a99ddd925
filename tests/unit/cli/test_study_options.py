"""`sweep` and the tunes that sweep take the same options, and say with them how to go on."""

from __future__ import annotations

from pathlib import Path

import pytest

from dsabench.cli.options import StudyOptions
from dsabench.cli.sweep import SweepOptions
from dsabench.cli.tune import HisparseOptions
from dsabench.errors import InputError
from dsabench.study.study import Study
from studies import STUDY, load_study


def test_going_on_is_the_same_command_and_measuring_anew_one_without_places() -> None:
    given = HisparseOptions(
        config="c.yaml", results=Path("r"), out=Path("t"), max_trials=8, budget=600.0, lanes=4, again=True,
        conclude=True, launch_env=["PYTHONPATH=/opt/sglang", "A=b"], gpus=4, same_pool=True, json=True,
    )  # fmt: skip
    assert given.resume_command() == (
        "dsabench tune hisparse c.yaml --results r --max-trials 8 --budget 600s --lanes 4 "
        "--launch-env PYTHONPATH=/opt/sglang --launch-env A=b --json --out t --gpus 4 --same-pool"
    )
    assert given.study_command() == "dsabench tune hisparse c.yaml --max-trials 8 --gpus 4 --same-pool"
    assert StudyOptions("c.yaml", dry_run=True).resume_command() == "dsabench sweep c.yaml"


@pytest.mark.parametrize("flag", ["again", "dry_run"])
def test_a_conclusion_measures_nothing_more(tmp_path, flag) -> None:
    with pytest.raises(InputError, match="exclude each other"):
        StudyOptions("c.yaml", conclude=True, **{flag: True}).study(load_study(tmp_path))


def test_more_boots_of_the_confirmation_take_none_from_the_search(tmp_path) -> None:
    config = load_study(tmp_path, STUDY.replace("max_trials: 6, confirm_boots: 2", "max_boots: 10, confirm_boots: 2"))
    more = Study.from_config(config, confirm_boots=5).config.budget
    assert (more.confirm_boots, more.max_boots) == (5, 16)
    limited = Study.from_config(config, confirm_boots=5, max_boots=12).config.budget
    assert (limited.confirm_boots, limited.max_boots) == (5, 12), "what the user names holds"
    with pytest.raises(InputError, match="the confirmation takes 10"):
        Study.from_config(config, confirm_boots=5, max_boots=10)
    assert StudyOptions("c.yaml", confirm_boots=12).resume_command() == "dsabench sweep c.yaml --confirm-boots 12"


def test_the_strategy_chooses_by_itself_without_first(tmp_path) -> None:
    text = STUDY + "first: [{chunked_prefill_size: 128}]\n"
    config = load_study(tmp_path, text)
    assert Study.from_config(config).config.first
    given = SweepOptions(config=str(tmp_path / "study.yaml"), no_first=True)
    assert given.study(config).config.first == ()
    assert given.study_command().endswith("study.yaml --no-first")
