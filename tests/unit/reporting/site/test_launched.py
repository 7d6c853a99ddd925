"""The command on a record's page."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dsabench.reporting.site.launched import command_of, readback_of
from dsabench.results.journal import read_journal

ROOT = Path(__file__).parents[4]


@pytest.mark.parametrize("elsewhere", [False, True])
def test_the_model_of_a_slice_is_found_from_the_root_of_the_repository(
    elsewhere: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if elsewhere:  # where the site is built changes nothing
        monkeypatch.chdir(tmp_path)
    (first, *_) = read_journal(ROOT / "results/h200/slice/journal.jsonl").records
    assert not (ROOT / first.trial.runtime.model).exists()
    command = command_of(first.trial.runtime, first.environment.runtime.version)
    found = re.search(r"--model-path (\S+)", command.text or "")
    assert found is not None
    assert found[1] == "configs/slices/v3.2-dp8-ep8-8l"
    assert (ROOT / found[1] / "config.json").is_file()
    assert command.note == "for sglang 0.5.16, from the root of dsabench's repository, where the model's folder lies"


def test_a_model_of_the_hub_needs_no_folder() -> None:
    (first, *_) = read_journal(ROOT / "results/h200/slice/journal.jsonl").records
    spec = first.trial.runtime.model_copy(update={"model": "deepseek-ai/DeepSeek-V3.2"})
    command = command_of(spec, "0.5.16")
    assert "--model-path deepseek-ai/DeepSeek-V3.2" in (command.text or "")
    assert command.note == "for sglang 0.5.16"


def test_what_the_reference_runtime_says_under_sglangs_names_is_found() -> None:
    """Kernel, MHA threshold and speculation too, none of which its /server_info has under the name of the knob."""
    for record in read_journal(ROOT / "results/reference-cpu/journal.jsonl").records:
        rows = readback_of(record.trial.runtime, record.resolved, record.environment.runtime.version)
        assert {row.name for row in rows} > {"prefill_backend", "mha_threshold_tokens", "speculative_algorithm"}
        assert [(row.name, row.runs) for row in rows] == [(row.name, row.asked) for row in rows]
        assert not any(row.differs for row in rows)
