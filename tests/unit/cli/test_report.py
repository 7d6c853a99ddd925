"""`dsabench report`: where a site may be written, and of what."""

from __future__ import annotations

from pathlib import Path

import pytest

from dsabench.cli.main import run
from dsabench.results.journal import Journal
from factories import make_record


@pytest.fixture
def results(tmp_path: Path) -> Path:
    folder = tmp_path / "results"
    Journal(folder).append(make_record())
    return folder


def test_a_site_is_written_over_and_other_files_are_not_mixed_with_it(
    results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["report", "--results", str(results), "--out"]
    mine = tmp_path / "mine"
    mine.mkdir()
    assert run([*words, str(mine)]) == 0  # an empty folder
    assert run([*words, str(mine)]) == 0  # an earlier site
    capsys.readouterr()
    full = tmp_path / "full"
    full.mkdir()
    (full / "page.md").write_text("mine")
    assert run([*words, str(full)]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"error: --out {full}: holds files that are not a dsabench site")
    assert (said.count("\n"), [file.name for file in full.iterdir()]) == (1, ["page.md"])
    assert run([*words, str(full), "--force"]) == 0
    assert (full / "page.md").read_text() == "mine"
    assert (full / "index.html").is_file()


def test_a_file_is_no_folder_and_no_record_no_site(
    results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "README.md"
    page.write_text("# A page\n")
    assert run(["report", "--results", str(results), "--out", str(page)]) == 2
    assert capsys.readouterr().err == f"error: --out {page}: a file, not a folder\n"
    assert run(["report", "--results", str(page), "--out", str(tmp_path / "site")]) == 2
    assert "no record in it" in capsys.readouterr().err
    empty = tmp_path / "empty"
    empty.mkdir()
    (empty / "journal.jsonl").touch()
    assert run(["report", "--results", str(empty), "--out", str(tmp_path / "site")]) == 2
    assert "nothing to report" in capsys.readouterr().err
    assert not (tmp_path / "site").exists()
