"""Tables of the reference runtime as a pull request to a checkout of dsabench."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

import dsabench
from dsabench.cli.main import run
from dsabench.emit.tables import write_table
from dsabench.emit.tree import SHIPPED, find_reference_tree
from unit.emit.made import made_table


@pytest.fixture
def checkout(tmp_path):
    package = tmp_path / "checkout/harness/dsabench"
    (package / SHIPPED).mkdir(parents=True)
    (package / "__init__.py").write_text(f'__version__ = "{dsabench.__version__}"\n')
    (package / SHIPPED / "old.json").write_text("{}\n")
    folder = tmp_path / "checkout"
    for words in (
        ("init", "-q", "-b", "main"),
        ("config", "user.name", "A"),
        ("config", "user.email", "a@example.org"),
    ):
        git(folder, *words)
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "first")
    return folder


def git(folder: Path, *words: str) -> str:
    return subprocess.run(["git", "-C", str(folder), *words], check=True, capture_output=True, text=True).stdout.strip()


def test_this_checkout_has_its_tables_where_they_are_looked_for():
    package = Path(dsabench.__file__).parent
    assert find_reference_tree(package).package == package.resolve()
    assert {path.suffix for path in (package / SHIPPED).iterdir()} == {".json"}


def test_the_tables_alone_are_committed_beside_the_shipped_ones(checkout, tmp_path, capsys):
    table = made_table(runtime="reference", device="CPU", heads_per_rank=8, index_topk=128)
    path = write_table(tmp_path, table)
    words = ["emit", "pr", str(path), "--tree", str(checkout), "--out", str(tmp_path / "pr"), "--json"]
    assert run(words) == 0, capsys.readouterr().err
    said = json.loads(capsys.readouterr().out)
    assert len(said["commits"]) == 1
    name = f"harness/dsabench/{SHIPPED}/{table.file_name}"
    assert git(checkout, "diff", "--name-only", "main", said["branch"]) == name
    assert git(checkout, "show", f"{said['branch']}:{name}") == path.read_text().strip()
    body = (tmp_path / "pr/pull-request.md").read_text()
    assert "Tables alone: the code that reads them is there." in body
    assert "--kernel-python" not in body
    again = subprocess.run(
        ["git", "-C", str(checkout), "am", "-q", str(tmp_path / "pr/commits.patch")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert again.returncode == 0, again.stderr
    assert (checkout / name).is_file()
    assert run([*words, "--branch", "more"]) == 2
    assert "these tables are in its HEAD already" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"runtime": "sglang"}, "neither srt/server_args.py nor"),
        ({"evidence": {"label": "shipped", "versions": {}}}, "nobody tuned it"),
    ],
)
def test_other_tables_are_refused(checkout, tmp_path, capsys, change, said):
    table = made_table(**{"runtime": "reference", "device": "CPU", **change})
    path = write_table(tmp_path, table)
    assert run(["emit", "pr", str(path), "--tree", str(checkout), "--out", str(tmp_path / "pr")]) == 2
    assert said in capsys.readouterr().err


def test_a_folder_without_dsabench_is_named(tmp_path, capsys):
    path = write_table(tmp_path / "t", made_table(runtime="reference", device="CPU"))
    assert run(["emit", "pr", str(path), "--tree", str(tmp_path), "--out", str(tmp_path / "pr")]) == 2
    assert "no dsabench here" in capsys.readouterr().err
