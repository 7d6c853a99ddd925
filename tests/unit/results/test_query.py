from __future__ import annotations

import csv
import json
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from dsabench.cli.main import run
from dsabench.errors import InputError
from dsabench.model.record import Measured, Metric
from dsabench.model.sample import Frames, RequestSample
from dsabench.results.journal import Journal
from dsabench.results.query import export, query
from dsabench.results.samples import write_samples
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
    assert query([journal], "SELECT outcome, fault FROM records ORDER BY record").rows == (
        ("measured", None),
        ("failed", "exited"),
    )
    found = query([journal], "SELECT value, n FROM metrics WHERE metric = 'ttft_ms.p50'")
    assert (found.columns, found.rows) == (("value", "n"), ((12.5, 16),))
    assert query([journal], "SELECT count(*), max(frame_at_s[1] - sent_s) FROM samples").rows == ((4, 0.25),)


def test_without_samples_the_table_is_there_and_empty(tmp_path: Path) -> None:
    made = Journal(tmp_path)
    made.append(make_record())
    assert query([made.path], "SELECT count(*) FROM samples").rows == ((0,),)


def test_a_wrong_statement_is_one_line(journal: Path) -> None:
    with pytest.raises(InputError) as caught:
        query([journal], "SELECT nothing FROM records")
    assert "nothing" in str(caught.value)
    assert "\n" not in str(caught.value)


NO_PYTZ = """
import json, sys
sys.modules["pytz"] = None
from dsabench.cli.main import run
for words in json.loads(sys.argv[1]):
    print("==", run(words))
"""


READING = (
    "select * from records",
    "select * from metrics",
    "select [started_at] as all_of_it, {'at': started_at} as one from records",
    'select now(), started_at as "now()" from records',
    "describe records",
    "explain select started_at from records",
    "pivot metrics on metric using first(value) group by started_at",
)


@pytest.mark.parametrize("form", ["table", "csv", "json"])
def test_times_need_no_package_that_the_install_lacks(journal: Path, form: str) -> None:
    given = [["results", "query", sql, "--results", str(journal), "--format", form] for sql in READING]
    done = subprocess.run(
        (sys.executable, "-c", NO_PYTZ, json.dumps(given)), capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("== 0") == len(READING)


def test_more_columns_than_fit_stand_one_below_the_other(
    journal: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert run(["results", "query", "select * from records", "--results", str(journal)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert (len(lines) < 80, max(map(len, lines)) <= 80) == (True, True)
    assert [line for line in lines if line.startswith("row ")] == ["row 1", "row 2"]
    assert "  fault            exited" in lines


def test_times_keep_their_zone_and_fewer_rows_their_order(journal: Path) -> None:
    [(first,)] = query([journal], "SELECT started_at FROM records ORDER BY record DESC", limit=1).rows
    assert first.utcoffset() == timedelta(0)
    [(listed,)] = query([journal], "SELECT list(started_at) FROM records").rows
    assert {one.utcoffset() for one in listed} == {timedelta(0)}
    assert query([journal], "SELECT record FROM records ORDER BY record DESC", limit=1).rows == ((2,),)


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("drop table records", "DROP: a query only reads"),
        ("delete from records", "DELETE: a query only reads"),
        ("copy records to 'out.csv'", "COPY: a query only reads"),
        ("select 1; select 2", "2 statements: give one SELECT"),
        ("", "0 statements: give one SELECT"),
    ],
)
def test_only_reading_statements_run(journal: Path, sql: str, said: str) -> None:
    with pytest.raises(InputError) as caught:
        query([journal], sql)
    assert str(caught.value).startswith(said)
    assert "\n" not in str(caught.value)


def test_warnings_are_a_column(tmp_path: Path) -> None:
    made = Journal(tmp_path)
    metrics = {"ttft_ms.p50": Metric(value=12.5, n=16)}
    made.append(make_record(outcome=Measured(metrics=metrics, warnings=('one, "quoted"', "two"))))
    made.append(make_record(occasion=1, outcome=make_failure()))
    assert query([made.path], "SELECT warnings FROM records ORDER BY occasion").rows == (
        (['one, "quoted"', "two"],),
        ([],),
    )
    export([made.path], "records", tmp_path / "out.csv")
    with (tmp_path / "out.csv").open() as file:
        assert [row["warnings"] for row in csv.DictReader(file)] == ['one, "quoted"; two', ""]


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
