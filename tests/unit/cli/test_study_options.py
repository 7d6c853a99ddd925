"""`sweep` and the tunes that sweep take the same options, and say with them how to go on."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

from dsabench.cli.study_request import Request
from dsabench.cli.sweep import sweep
from dsabench.cli.tune import hisparse, mha_threshold
from dsabench.errors import InputError
from studies import load_study


@pytest.mark.parametrize("tune", [mha_threshold, hisparse])
def test_what_sweep_takes_a_tune_takes_in_the_same_words(tune) -> None:
    theirs = inspect.signature(tune, eval_str=True).parameters
    for name, of_sweep in inspect.signature(sweep, eval_str=True).parameters.items():
        assert (theirs[name].annotation, theirs[name].default) == (of_sweep.annotation, of_sweep.default), name


def request(**changes: object) -> Request:
    fields: dict[str, object] = {
        "config": "c.yaml", "results": None, "max_trials": None, "max_boots": None, "time_s": None, "dry_run": False,
        "again": False, "as_json": False,
    }  # fmt: skip
    return Request(**{**fields, **changes})  # type: ignore[arg-type]


def test_going_on_is_the_same_command_and_measuring_anew_one_without_places() -> None:
    given = request(
        verb=("tune", "hisparse"), results=Path("r"), out=Path("t"), max_trials=8, time_s=600.0, lanes=4, again=True,
        conclude=True, launch_env=("PYTHONPATH=/opt/sglang",), own=(("--gpus", 4), ("--host-memory-gib", None)),
    )  # fmt: skip
    assert given.resume_command() == (
        "dsabench tune hisparse c.yaml --results r --max-trials 8 --gpus 4 --budget 600s --lanes 4 --out t "
        "--launch-env PYTHONPATH=/opt/sglang"
    )
    assert given.study_command() == "dsabench tune hisparse c.yaml --max-trials 8 --gpus 4"
    assert request().resume_command() == "dsabench sweep c.yaml"


@pytest.mark.parametrize("flag", ["again", "dry_run"])
def test_a_conclusion_measures_nothing_more(tmp_path, flag) -> None:
    with pytest.raises(InputError, match="--conclude asks the records alone"):
        request(conclude=True, **{flag: True}).study(load_study(tmp_path))
