"""The built wheel works outside the checkout: it carries the rooms, both packages, the keeper and the tables."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from studies import write_study

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder into which the wheel is installed, without what it depends on."""
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder / "dist"), str(ROOT)]
    subprocess.run(build, check=True, capture_output=True)
    (wheel,) = (folder / "dist").glob("*.whl")
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-index", "--target", str(folder / "site")]
    subprocess.run([*pip, str(wheel)], check=True, capture_output=True)
    return folder / "site"


def run(site: Path, cwd: Path, *words: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "dsabench", *map(str, words)],
        env=os.environ | {"PYTHONPATH": str(site)},
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )


def test_shipped_configs_are_found(site, tmp_path) -> None:
    checked = run(site, tmp_path, "config", "check", "local")
    assert checked.returncode == 0, checked.stderr
    plan = run(site, tmp_path, "sweep", "configs/local.yaml", "--dry-run", "--json")
    assert json.loads(plan.stdout)["boots"] == 14


def test_a_sweep_runs(site, tmp_path) -> None:
    done = run(site, tmp_path, "sweep", write_study(tmp_path), "--max-trials", "2", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["trials"] == 2
    assert (tmp_path / "results" / "study" / "journal.jsonl").exists()
