"""What an autotune of a whole node would cost, before anything boots."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dsabench.cli.main import run
from dsabench.results.journal import read_journal
from dsabench.results.places import find_journals
from dsabench.results.study_records import gpu_seconds

ROOT = Path(__file__).parents[3]


def test_every_stage_of_the_node_has_its_gpu_hours_and_dollars(tmp_path, capsys) -> None:
    config = tmp_path / "h200.yaml"
    config.write_text((ROOT / "configs" / "h200.yaml").read_text() + "price_per_gpu_hour: 2.0\n")
    assert run(["autotune", str(config), "--results", str(tmp_path / "out"), "--dry-run", "--json"]) == 0
    stages = {one["stage"]: one for one in json.loads(capsys.readouterr().out)["stages"]}
    assert list(stages) == ["sweep", "flashmla-auto", "mha-threshold", "proof"]
    for one in stages.values():
        assert one["trouble"] is None
        gpus = 1 if one["stage"] == "flashmla-auto" else 8
        assert one["gpu_hours"] == pytest.approx(gpus * one["seconds"] / 3600, rel=0.01)
        assert one["dollars"] == pytest.approx(2.0 * one["gpu_hours"])
    assert stages["proof"]["boots"] == 2 * 2 * 4
    notes = "\n".join(stages["sweep"]["notes"])
    assert "gate: gsm8k-clean, 1319 questions × 11, margin 1 point" in notes
    assert "refused by the rules: none of the 1,536 settings of the space" in notes
    assert stages["sweep"]["at_most"]["changes"] == 6
    assert not (tmp_path / "out").exists()


def test_the_recorded_job_took_half_an_hour_of_its_gpu() -> None:
    """19 boots and 38 trials on one H200, the first boot with its compilation."""
    journals = find_journals(ROOT / "results" / "h200" / "autotune")
    records = [record for journal in journals for record in read_journal(journal).records]
    assert gpu_seconds(records, lambda _: 1) == pytest.approx(29.4 * 60, rel=0.01)
