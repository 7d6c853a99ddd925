"""A study whose confirmation sends prompts that its search never sent."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from dsabench.config.load import load_study
from dsabench.errors import InputError
from dsabench.load.draw.prompts import draw_prompts
from dsabench.load.requests import LoadTarget
from dsabench.model.workload import DatasetSplit, Workload
from dsabench.reporting.comparison import ComparedSide, match
from dsabench.results.journal import read_journal
from dsabench.results.study_records import StudyRecords
from dsabench.study.study import Study
from studies import STUDY

TARGET = LoadTarget("http://h:1", "m", vocab_size=50_000, tokenizer="bytes")
HALVES = {"search": 0.5, "confirm": 0.5}


def prompts(workload: Workload, phase: str) -> set[object]:
    found = draw_prompts(TARGET, workload.in_phase(phase)).measured
    assert len(found) == workload.num_prompts
    return {one.input_ids or one.text for one in found}


def written(path: Path, rows: list[Any]) -> str:
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return str(path)


def burstgpt(path: Path) -> str:
    lines = (f"{5 * i},ChatGPT,{20 + i},3,9,x" for i in range(16))
    path.write_text("Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n" + "\n".join(lines))
    return str(path)


def pairs() -> list[Any]:
    return [{"conversations": [{"value": f"Why {i}?"}, {"value": "Because."}]} for i in range(16)]


def files(folder: Path) -> dict[str, str | None]:
    return {
        "random-ids": None,
        "mooncake": written(folder / "m", [{"timestamp": 9 * i, "input_length": 20 + i} for i in range(16)]),
        "burstgpt": burstgpt(folder / "b.csv"),
        "custom": written(folder / "c", pairs()),
        "sharegpt": written(folder / "s.jsonl", pairs()),
    }


@pytest.mark.parametrize("dataset", ["random-ids", "mooncake", "burstgpt", "custom", "sharegpt"])
def test_search_and_confirmation_share_no_prompt(tmp_path: Path, dataset: str) -> None:
    lengths = {"input_len": 30, "output_len": 4} if dataset == "random-ids" else {}
    point = Workload(name="w", dataset=dataset, dataset_path=files(tmp_path)[dataset], num_prompts=8, **lengths)  # type: ignore[arg-type]
    split = point.model_copy(update={"dataset_split": DatasetSplit(**HALVES)})
    assert prompts(split, "search") & prompts(split, "confirm") == set()
    assert prompts(split, "search") == prompts(split, "search")
    assert prompts(point, "search") == prompts(point, "confirm")
    if dataset != "random-ids":
        with pytest.raises(InputError, match="prompts for it, num_prompts is 9"):
            draw_prompts(TARGET, split.model_copy(update={"num_prompts": 9}).in_phase("confirm"))


def test_a_session_stays_in_the_part_in_which_it_begins(tmp_path: Path) -> None:
    rows = [
        {"timestamp": i, "input_length": 10 + i, "session_id": "long" if i in {1, 7} else f"s{i}"} for i in range(8)
    ]
    load = {"name": "w", "dataset": "mooncake", "dataset_path": written(tmp_path / "m", rows), "dataset_split": HALVES}
    found = {
        phase: [
            one.input_len for one in draw_prompts(TARGET, Workload(**load, num_prompts=count).in_phase(phase)).measured
        ]
        for phase, count in (("search", 5), ("confirm", 3))
    }
    assert found == {"search": [10, 11, 12, 13, 17], "confirm": [14, 15, 16]}


def config(folder: Path, keys: str) -> Path:
    """The small study of `studies`, with one workload that has these keys."""
    first, second = STUDY.splitlines()[8:10]
    file = folder / "c.yaml"
    file.write_text(STUDY.replace(first, first.replace("}", f", {keys}}}")).replace(second + "\n", ""))
    return file


def test_a_study_confirms_on_the_held_out_half(tmp_path: Path) -> None:
    """A whole study on the reference server; a second run measures nothing, and the search's numbers are not compared."""
    study = Study.from_config(
        config(tmp_path, "dataset_split: {search: 0.5, confirm: 0.5}"), results=tmp_path / "r", max_trials=2
    )
    study.run()
    records = read_journal(tmp_path / "r" / "journal.jsonl").records
    parts = {(record.phase, record.trial.workload.part) for record in records}
    assert parts == {("search", "search"), ("confirm", "confirm")}
    assert len(records) == 6
    study.run()
    assert len(read_journal(tmp_path / "r" / "journal.jsonl").records) == 6
    known = StudyRecords(study.config, records[0].environment.fingerprint, records)
    assert len(known.records) == 6
    assert known.boots(0) == 6
    sides = [ComparedSide(name, records) for name in ("one", "other")]
    assert {one.trial.workload.part for pair in match(*sides) for one in pair.base} == {"confirm"}


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ("dataset_split: {search: 0.7, confirm: 0.5}", "search and confirm are more than the whole: 0.7 + 0.5 > 1"),
        ("dataset_split: {search: 0.0, confirm: 0.5}", "search"),
        ("dataset_split: {search: 0.5, confirm: 0.5}, draw: exact", "draw: exact takes the whole dataset"),
        ("part: confirm", "is set in records; a config names dataset_split"),
    ],
)
def test_a_split_that_means_nothing_is_refused(tmp_path: Path, keys: str, message: str) -> None:
    with pytest.raises(InputError, match=re.escape(message)):
        load_study(config(tmp_path, keys))
