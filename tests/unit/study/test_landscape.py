"""Files of landscapes: what is read, what is refused, and what a journal gives."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest

from dsabench.config.load import load_study
from dsabench.errors import InputError
from dsabench.model.space import canonical, key_of
from dsabench.results.study_records import StudyRecords
from dsabench.study.context import context_of_records
from dsabench.study.landscape import Landscape, landscape_of, read_landscape, write_landscape
from dsabench.study.synthetic import KINDS, generate
from factories import ENVIRONMENT, make_failure, make_record
from studies import load_study as load_small_study

HEAD: dict[str, Any] = {
    "landscape": 1,
    "name": "two",
    "noise": 0.01,
    "base": {"a": 1, "b": "p"},
    "axes": {"a": [1, 2], "b": ["p", "q"]},
    "forbid": [{"a": 2, "b": "q"}],
}
LINES: list[dict[str, Any]] = [
    {"setting": {"a": 1, "b": "p"}, "value": 10.0, "boot_s": 60, "trials_s": 20},
    {"setting": {"a": 2, "b": "p"}, "value": 12.0, "boot_s": 60, "trials_s": 20},
    {"setting": {"a": 1, "b": "q"}, "fault": "exited", "boot_s": 30},
]


def written(tmp_path: Path, *lines: dict[str, Any] | str) -> Path:
    file = tmp_path / "space.jsonl"
    file.write_text("".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines))
    return file


def test_reads_what_the_page_describes(tmp_path: Path) -> None:
    landscape = read_landscape(written(tmp_path, HEAD, *LINES))
    assert [one.seconds for one in landscape.settings] == [80, 80, 30]
    assert landscape.seconds == 190
    assert landscape.best.setting == {"a": 2, "b": "p"}
    assert landscape.regret(landscape.settings[0]) == pytest.approx(1 - 10 / 12)


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([""], r":1: empty|:1: not JSON"),
        (["{"], r":1: not JSON"),
        ([HEAD | {"wild": 1}, *LINES], r":1: unknown key 'wild' .*allowed: landscape, name"),
        ([HEAD, LINES[0] | {"value": -1}], r":2: value: Input should be greater than 0"),
        ([HEAD, LINES[0] | {"fault": "exited"}], r":2: .*needs either value or fault"),
        ([HEAD, *LINES, LINES[1]], r":5: the setting of line 3 again"),
        ([HEAD, *LINES, {"setting": {"a": 2, "b": "q"}, "value": 1, "boot_s": 1}], r":5: .* not legal in the space"),
        ([HEAD, *LINES[1:]], r":1: base is the default, but no line has a value for it"),
        ([HEAD | {"base": {}}, LINES[2]], r":1: no setting is feasible"),
    ],
)
def test_a_mistake_is_one_line_with_its_place(tmp_path: Path, lines: list[Any], message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        read_landscape(written(tmp_path, *lines))
    assert "\n" not in str(caught.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=re.escape(str(tmp_path / "none.jsonl"))):
        read_landscape(tmp_path / "none.jsonl")


def test_a_damaged_packed_file_is_named(tmp_path: Path) -> None:
    file = tmp_path / "space.jsonl.gz"
    write_landscape(generate("smooth", 1), file)
    whole = file.read_bytes()
    for damaged in (whole[:200], whole[:100] + bytes(100) + whole[200:], b"no gzip"):
        file.write_bytes(damaged)
        with pytest.raises(InputError, match="cannot be read"):
            read_landscape(file)


@pytest.mark.parametrize("suffix", [".jsonl", ".jsonl.gz"])
def test_comes_back_as_it_was_written(tmp_path: Path, suffix: str) -> None:
    landscape = generate("rugged", 5)
    file = tmp_path / f"space{suffix}"
    write_landscape(landscape, file)
    again = read_landscape(file)
    assert (again.header, again.settings) == (landscape.header, landscape.settings)


@pytest.mark.parametrize(("kind", "settings"), [("smooth", 960), ("rugged", 960), ("wide", 3840), ("widest", 11520)])
def test_invented_landscapes_have_their_size_failures_and_costs(kind: str, settings: int) -> None:
    assert kind in KINDS
    landscapes = [generate(kind, seed) for seed in range(3)]
    for one in landscapes:
        assert len(one.settings) == settings
        assert 0.25 < sum(found.value is None for found in one.settings) / settings <= 0.33
        assert all(60 <= found.boot_s <= 300 for found in one.settings)
        Landscape.model_validate(one.model_dump())
    assert len({one.best.value for one in landscapes}) == 3
    assert generate(kind, 1) == landscapes[1]


def test_a_journal_is_a_landscape_of_what_was_measured() -> None:
    context = context_of_records(load_study("local"), Path("results/reference-cpu"))
    landscape = landscape_of(context.records())
    assert len(landscape.settings) == 6
    assert 0.0 < landscape.header.noise < 0.2
    assert landscape.best.is_feasible


def test_rounds_are_averaged_and_a_setting_fails_that_never_ran(tmp_path: Path) -> None:
    config = load_small_study(tmp_path)
    ran, failed = config.spec({"chunked_prefill_size": 128}), config.spec({"prefill_backend": "flashmla_sparse"})
    default = config.default
    values = [(default, 0, 100.0), (default, 1, 121.0), (ran, 0, 90.0), (failed, 0, None), (ran, 1, None)]
    records = [
        make_record(
            spec=spec,
            workload=load,
            round_=round_,
            occasion=round_,
            outcome=make_failure() if value is None else None,
            value=value or 1.0,
        )
        for spec, round_, value in values
        for load in config.workloads
    ]
    landscape = landscape_of(StudyRecords(config, ENVIRONMENT.fingerprint, records))
    told = {key_of(one.setting): one for one in landscape.settings}
    baseline, other, broken = (
        told[key_of(canonical(config.space, config.default.knobs, spec.knobs))] for spec in (default, ran, failed)
    )
    assert (baseline.value, baseline.n) == (pytest.approx(110.0), 2)
    assert (other.value, other.n, other.fault) == (pytest.approx(90.0), 1, None)
    assert (broken.value, broken.fault) == (None, "exited")
    assert landscape.header.noise == pytest.approx(math.log(1.21) / math.sqrt(2) / math.sqrt(len(config.workloads)))
