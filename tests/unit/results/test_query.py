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
from dsabench.results.frames import load_results
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
    assert query(load_results(journal), "SELECT outcome, fault FROM records ORDER BY record").rows == (
        ("measured", None),
        ("failed", "exited"),
    )
    found = query(load_results(journal), "SELECT value, n FROM metrics WHERE metric = 'ttft_ms.p50'")
    assert (found.columns, found.rows) == (("value", "n"), ((12.5, 16),))
    assert query(load_results(journal), "SELECT count(*), max(frame_at_s[1] - sent_s) FROM samples").rows == (
        (4, 0.25),
    )


def test_without_samples_the_table_is_there_and_empty(tmp_path: Path) -> None:
    made = Journal(tmp_path)
    made.append(make_record())
    assert query(load_results(made.path), "SELECT count(*) FROM samples").rows == ((0,),)


def test_a_wrong_statement_is_one_line(journal: Path) -> None:
    with pytest.raises(InputError) as caught:
        query(load_results(journal), "SELECT nothing FROM records")
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
    assert (done.returncode, "Traceback" in done.stderr) == (0, False)
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
    [(first,)] = query(load_results(journal), "SELECT started_at FROM records ORDER BY record DESC", limit=1).rows
    assert first.utcoffset() == timedelta(0)
    [(listed,)] = query(load_results(journal), "SELECT list(started_at) FROM records").rows
    assert {one.utcoffset() for one in listed} == {timedelta(0)}
    assert query(load_results(journal), "SELECT record FROM records ORDER BY record DESC", limit=1).rows == ((2,),)


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("drop table records", "DROP: a query only reads"),
        ("delete from records", "DELETE: a query only reads"),
        ("copy records to 'out.csv'", "COPY: a query only reads"),
        ("explain analyze copy (select 1) to 'out.csv'", "COPY: a query only reads"),
        ("EXPLAIN (ANALYZE, FORMAT json) drop table records", "DROP: a query only reads"),
        ("explain insert into records select * from records", "INSERT: a query only reads"),
        ("set lock_configuration = false", "SET: a query only reads"),
        ("attach 'other.db'", "ATTACH: a query only reads"),
        ("select 1; select 2", "2 statements: give one SELECT"),
        ("", "0 statements: give one SELECT"),
    ],
)
def test_only_reading_statements_run(journal: Path, sql: str, said: str) -> None:
    with pytest.raises(InputError) as caught:
        query(load_results(journal), sql)
    assert str(caught.value).startswith(said)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "source",
    [
        "read_text('/proc/self/environ')",
        "read_csv('/etc/passwd')",
        "'/etc/passwd'",
        "glob('/*')",
        "read_parquet('x.parquet')",
        "read_blob('/etc/hostname')",
    ],
)
def test_a_query_reaches_no_file(journal: Path, source: str) -> None:
    with pytest.raises(InputError, match=r"disabled|does not exist"):
        query(load_results(journal), f"SELECT * FROM {source}")


def test_every_reader_takes_the_same_lines(journal: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """A line that is no record, and one whose key stands there already, are left out of all of them, and named."""
    place, out = ("--results", str(journal)), tmp_path / "out.csv"
    for words in (["list"], ["query", "select count(*) from records"], ["export", str(out)]):
        assert run(["results", *words, *place]) == 0
        said = capsys.readouterr()
        assert [line.partition(": ")[2].partition(" ")[0] for line in said.err.splitlines()] == [
            f"{journal}:3:",
            f"{journal}:4:",
        ]
    assert query(load_results(journal), "SELECT count(*) FROM records").rows == ((2,),)
    assert len(out.read_text().splitlines()) == 3

    newer = json.loads(journal.read_bytes().splitlines()[0]) | {"schema_version": 99, "occasion": 7}
    journal.write_text(json.dumps(newer) + "\n")
    for words in (["list"], ["query", "select 1"], ["export", str(out)], ["show", newer["id"][:8]]):
        assert run(["results", *words, *place]) == 2
        assert "schema_version 99 is newer than this dsabench" in capsys.readouterr().err


def test_what_a_record_says_steers_no_terminal_and_no_spreadsheet(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = Journal(tmp_path)
    bad = "\x1b]0;owned\x07\x1b]52;c;aGk=\x07"
    made.append(
        make_record(outcome=make_failure().model_copy(update={"message": "=1+1" + bad, "log_tail": "@x" + bad}))
    )
    place = ("--results", str(tmp_path))
    first = made.read().records[0].id[:8]
    for words in (
        ["list"],
        ["show", first],
        *(["query", "select message from records", "--format", form] for form in ("table", "csv", "json")),
    ):
        assert run(["results", *words, *place]) == 0
        shown = capsys.readouterr().out
        assert not any(char in shown for char in "\x1b\x07"), words
    export(load_results(tmp_path), "records", tmp_path / "out.csv")
    with (tmp_path / "out.csv").open() as file:
        [row] = csv.DictReader(file)
    assert row["message"].startswith("'=1+1\\x1b]0;")


def test_warnings_are_a_column(tmp_path: Path) -> None:
    made = Journal(tmp_path)
    metrics = {"ttft_ms.p50": Metric(value=12.5, n=16)}
    made.append(make_record(outcome=Measured(metrics=metrics, warnings=('one, "quoted"', "two"))))
    made.append(make_record(occasion=1, outcome=make_failure()))
    assert query(load_results(made.path), "SELECT warnings FROM records ORDER BY occasion").rows == (
        (['one, "quoted"', "two"],),
        ([],),
    )
    export(load_results(made.path), "records", tmp_path / "out.csv")
    with (tmp_path / "out.csv").open() as file:
        assert [row["warnings"] for row in csv.DictReader(file)] == ['one, "quoted"; two', ""]


def test_export_has_a_column_for_each_knob_and_metric(journal: Path, tmp_path: Path) -> None:
    assert export(load_results(journal), "records", tmp_path / "out.csv") == 2
    with (tmp_path / "out.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["knob.prefix_cache"] for row in rows] == ["true", "false"]
    assert [row["ttft_ms.p50"] for row in rows] == ["12.5", ""]
    assert export(load_results(journal), "samples", tmp_path / "out.parquet") == 4
    assert pq.read_table(tmp_path / "out.parquet").column("frame_tokens").to_pylist()[0] == [1, 2]
    with pytest.raises(InputError, match=r"\.csv or \.parquet"):
        export(load_results(journal), "records", tmp_path / "out.xlsx")
