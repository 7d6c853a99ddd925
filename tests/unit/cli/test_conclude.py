"""`dsabench sweep --conclude` over committed records, without a runtime."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from program import dsabench
from unit.reference.server.serving import ROOT


def conclude(folder: Path, *words: str) -> str:
    shutil.copy(ROOT / "results/h200/slice/journal.jsonl", folder)
    done = dsabench("sweep", "h200-slice", "--results", folder, "--conclude", *words)
    assert done.returncode == 0, done.stderr
    return " ".join(done.stdout.split())


def test_what_the_speed_of_the_best_does_not_say_is_said_beside_it(tmp_path: Path) -> None:
    weights = "measured with random weights: speeds are valid for these shapes, outputs mean nothing"
    accuracy = "may change answers (mha_threshold_tokens, prefill_backend): accuracy unproven, the config has no gate"
    shown = conclude(tmp_path)
    assert weights in shown
    assert accuracy in shown
    assert json.loads(conclude(tmp_path, "--json"))["unguarded"] == [weights, accuracy]
