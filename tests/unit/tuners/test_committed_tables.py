"""The tables of the H200 are what the committed kernel times give, and each applies to every version that has its kind."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
H200 = ROOT / "results" / "h200"


def tune(config: str, out: Path) -> Path:
    words = ("tune", "flashmla-auto", config, "--kernels", "results/h200/kernels", "--out", str(out))
    subprocess.run([sys.executable, "-m", "dsabench", *words], cwd=ROOT, check=True, capture_output=True)
    [table] = out.glob("*.json")
    return table


@pytest.mark.slow
@pytest.mark.parametrize(("config", "heads"), [("h200-slice", 128), ("h200-tp8", 16), ("h200-glm5", 64)])
def test_a_committed_table_is_what_its_command_makes(config: str, heads: int, tmp_path: Path) -> None:
    made = tune(config, tmp_path)
    assert f"H={heads}," in made.name
    assert made.read_text() == (H200 / "tables" / made.name).read_text()
    evidence = json.loads(made.read_text())["evidence"]
    assert evidence["label"] == "measured"
    assert evidence["command"].startswith(f"dsabench tune flashmla-auto {config} ")
    assert evidence["regret"] < 0.01 < evidence["regret_shipped"]
