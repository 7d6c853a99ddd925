"""`dsabench sweep --conclude` over committed records: a real process, no runtime."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

from unit.serving.serving import ROOT, environment


def conclude(folder: Path, *words: str) -> str:
    shutil.copy(ROOT / "results/h200/slice/journal.jsonl", folder)
    command = [sys.executable, "-m", "dsabench", "sweep", "h200-slice", "--results", str(folder), "--conclude", *words]
    done = subprocess.run(command, capture_output=True, text=True, env=environment(), timeout=60, check=True)
    return " ".join(done.stdout.split())


def test_what_the_speed_of_the_best_does_not_say_is_said_beside_it(tmp_path: Path) -> None:
    weights = "measured with random weights: speeds are those of the shapes, outputs mean nothing"
    accuracy = "may answer otherwise than the default (mha_threshold_tokens, prefill_backend): accuracy unproven, the config has no gate"
    shown = conclude(tmp_path)
    assert weights in shown
    assert accuracy in shown
    assert json.loads(conclude(tmp_path, "--json"))["unguarded"] == [weights, accuracy]
