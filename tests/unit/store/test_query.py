from __future__ import annotations

import csv
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from dsabench.errors import InputError
from dsabench.model.outcome import Measured, Metric
from dsabench.model.sample import Frames, RequestSample
from dsabench.store.journal import Journal
from dsabench.store.query import ask, export
from dsabench.store.samples import write_samples
from factories import make_failure, make_record, make_spec


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    name = "samples/it's.parquet"
    metrics = {"ttft_ms.p50": Metric(value=12.5, n=16), "output_throughput_tok_s": Metric(value=100.0, n=16)}
    frames = Frames.of([(0.5, 1), (0.75, 2)])
    samples = [RequestSample(i, 0.0, 0.25, 0.75, 64, 3, frames) for i in range(4)]
    write_samples(tmp_path, name, samples)
    made = Journal(tmp_path)
    made.append(make_record(spec=make_spec(prefix_cache=True), outcome=Measured(metrics=metrics, samples=name)))
    made.append(make_record(spec=make_spec(prefix_cache=False), outcome=make_failure()))
    with made.path.open("ab") as file:
        file.write(made.path.read_bytes().splitlines()[0] + b"\n" + b'{"torn')
    return made.path


def test_rows_are_records_metrics_and_requests(journal: Path) -> None:
    assert ask([journal], "SELECT outcome, fault FROM records ORDER BY record").rows == (
        ("measured", None),
        ("failed", "exited"),
    )
    found = ask([journal], "SELECT value, n FROM metrics WHERE metric = 'ttft_ms.p50'")
    assert (found.columns, found.rows) == (("value", "n"), ((12.5, 16),))
    assert ask([journal], "SELECT count(*), max(frame_at_s[1] - sent_s) FROM samples").rows == ((4, 0.25),)


def test_without_samples_the_table_is_there_and_empty(tmp_path: Path) -> None:
    made = Journal(tmp_path)
    made.append(make_record())
    assert ask([made.path], "SELECT count(*) FROM samples").rows == ((0,),)


def test_a_wrong_statement_is_one_line(journal: Path) -> None:
    with pytest.raises(InputError) as caught:
        ask([journal], "SELECT nothing FROM records")
    assert "nothing" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_export_has_a_column_for_each_knob_and_metric(journal: Path, tmp_path: Path) -> None:
    assert export([journal], "records", tmp_path / "out.csv") == 2
    with (tmp_path / "out.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["knob.prefix_cache"] for row in rows] == ["true", "false"]
    assert [row["ttft_ms.p50"] for row in rows] == ["12.5", ""]
    assert export([journal], "samples", tmp_path / "out.parquet") == 4
    assert pq.read_table(tmp_path / "out.parquet").column("frame_tokens").to_pylist()[0] == [1, 2]
    with pytest.raises(InputError, match=r"\.csv or \.parquet"):
        export([journal], "records", tmp_path / "out.xlsx")
