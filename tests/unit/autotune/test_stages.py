"""Which stages a run enters, and what their journal keeps."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from dsabench.autotune.stages import (
    FILE_NAME,
    STAGES,
    StageRecord,
    append_stage,
    choose_stages,
    read_stages,
    seconds_by_stage,
)
from dsabench.errors import InputError


def record(stage: str = "sweep", seconds: float = 2.0) -> StageRecord:
    return StageRecord(
        stage=stage,
        state="done",
        says="it ended",
        seconds=seconds,
        measured=3,
        started_at=datetime.now(UTC),
        files=("a",),
    )


@pytest.mark.parametrize(
    ("only", "skip", "until", "names"),
    [
        ((), (), None, STAGES),
        ((), (), "sweep", ("doctor", "plan", "sweep")),
        (("report", "sweep"), (), None, ("sweep", "report")),
        ((), ("doctor", "pr"), "mha-threshold", ("plan", "sweep", "flashmla-auto", "mha-threshold")),
    ],
)
def test_only_skip_and_until_choose_stages_in_their_order(only, skip, until, names):
    assert choose_stages(only, skip, until) == names


@pytest.mark.parametrize(
    ("only", "until", "said"),
    [
        (("sweeep",), None, r"--only sweeep: no such stage; did you mean sweep\? \(doctor, plan, sweep"),
        ((), "proofs", "--until proofs: no such stage; did you mean proof"),
        (("pr",), "sweep", "leave no stage"),
    ],
)
def test_a_stage_that_is_none_gets_one_line(only, until, said):
    with pytest.raises(InputError, match=said):
        choose_stages(only, (), until)


def test_the_journal_of_stages_survives_a_torn_line(tmp_path):
    append_stage(tmp_path, record())
    with (tmp_path / FILE_NAME).open("a") as file:
        file.write('{"stage": "proof", "sta')
    assert read_stages(tmp_path) == read_stages(tmp_path)[:1]
    append_stage(tmp_path, record("report", 1.0))
    append_stage(tmp_path, record("sweep", 0.5))
    kept = read_stages(tmp_path)
    assert [one.stage for one in kept] == ["sweep", "report", "sweep"]
    assert kept[0].files == ("a",)
    assert seconds_by_stage(kept) == {"sweep": 2.5, "report": 1.0}


def test_a_folder_without_a_journal_has_no_stages(tmp_path):
    assert read_stages(tmp_path) == ()
