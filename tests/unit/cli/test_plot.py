from __future__ import annotations

from pathlib import Path

import pytest

from dsabench.cli.main import run

EVIDENCE = Path(__file__).parents[3] / "results" / "reference-cpu"


def test_a_record_or_its_file_becomes_a_picture(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = min((EVIDENCE / "samples").glob("*-0.parquet"))
    assert (
        run(["results", "plot", f"{file.name[:10]}:0", "-o", str(tmp_path / "a.svg"), "--results", str(EVIDENCE)]) == 0
    )
    assert run(["results", "plot", str(file), "-o", str(tmp_path / "b")]) == 0
    assert capsys.readouterr().out.split() == [str(tmp_path / name) for name in ("a.svg", "b.svg")]
    assert all((tmp_path / name).stat().st_size > 1000 for name in ("a.svg", "b.svg"))


def test_mistakes_are_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    broken = tmp_path / "broken.parquet"
    broken.write_text("PAR1 no")
    said = {
        "none.parquet": "none.parquet: no such file",
        str(broken): "not a Parquet file of request samples",
        "feedface": "no such record",
    }
    for what, words in said.items():
        assert run(["results", "plot", what, "-o", str(tmp_path / "a.svg"), "--results", str(EVIDENCE)]) == 2
        assert words in capsys.readouterr().err
