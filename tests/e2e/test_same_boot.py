"""A sweep that changes its running server, on real processes."""

from __future__ import annotations

import json
import subprocess
import sys
from itertools import groupby
from pathlib import Path

import pytest

from studies import SHORT_EVAL

STUDY = """
name: shared
runtime:
  kind: reference
  model: tiny
  base: {prefix_cache: true, pp_max_micro_batch_size: 8, cpu_threads: 1}
workloads:
  - {name: load, dataset: random-ids, input_len: 32, output_len: 8, num_prompts: 8, max_concurrency: 4}
sweeps:
  - axes: {prefix_cache: [true, false], pp_max_micro_batch_size: [1, 4, 8]}
proposer: {kind: PROPOSER}
objective: {metric: output_throughput_tok_s, direction: maximize}
budget: {confirm_boots: 0}
"""


def sweep(folder: Path, *words: str) -> str:
    command = [sys.executable, "-m", "dsabench", "sweep", str(folder / "shared.yaml"), "--results", str(folder), *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def records_of(folder: Path) -> list[dict]:
    return [json.loads(line) for line in (folder / "journal.jsonl").read_text().splitlines()]


def knobs_of(record: dict) -> tuple[bool, int]:
    knobs = record["trial"]["runtime"]["knobs"]
    return knobs.get("prefix_cache", True), knobs["pp_max_micro_batch_size"]


@pytest.mark.slow
@pytest.mark.parametrize("proposer", ["grid", "gp"])
def test_six_settings_take_two_boots_and_each_record_tells_what_ran(tmp_path, proposer) -> None:
    (tmp_path / "shared.yaml").write_text(STUDY.replace("PROPOSER", proposer))
    plan = json.loads(sweep(tmp_path, "--dry-run", "--json"))
    assert (plan["boots"], plan["boots_saved"], plan["trials"]) == (2, 4, 6)
    said = " ".join(sweep(tmp_path, "--dry-run").split())
    assert "4 boots saved" in said
    assert "pp_max_micro_batch_size changes on the running server" in said
    sweep(tmp_path)
    records = records_of(tmp_path)
    assert len({knobs_of(record) for record in records}) == len(records) == 6
    assert {record["outcome"]["kind"] for record in records} == {"measured"}
    for record in records:
        assert record["resolved"]["pp_max_micro_batch_size"] == knobs_of(record)[1]
    boots = [boot for boot, _ in groupby(records, key=lambda one: one["boot"])]
    if proposer == "grid":
        assert len(boots) == 2
    assert len(boots) == len(set(boots)) < 6


@pytest.mark.slow
def test_a_killed_sweep_finishes_its_settings_in_the_same_order(tmp_path) -> None:
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    for folder in (whole, cut):
        folder.mkdir()
        (folder / "shared.yaml").write_text(STUDY.replace("PROPOSER", "grid"))
    sweep(whole)
    lines = (whole / "journal.jsonl").read_text().splitlines(keepends=True)
    (cut / "journal.jsonl").write_text("".join(lines[:2]))
    sweep(cut)
    assert [*map(knobs_of, records_of(cut))] == [*map(knobs_of, records_of(whole))]
    assert len({record["boot"] for record in records_of(cut)}) == 3


@pytest.mark.slow
def test_a_value_that_a_running_server_refuses_gets_a_boot_of_its_own(tmp_path) -> None:
    study = STUDY.replace("PROPOSER", "grid").replace("cpu_threads: 1", "cpu_threads: 1, max_running_requests: 4")
    (tmp_path / "shared.yaml").write_text(study.replace("[true, false]", "[true]").replace("size: 8,", "size: 1,"))
    said = sweep(tmp_path)
    assert said.count("did not change on the running server, so it boots again") == 1
    assert "/set_internal_state: not changed: [false]" in said
    records = records_of(tmp_path)
    assert {knobs_of(record)[1]: record["outcome"]["kind"] for record in records} == dict.fromkeys(
        (1, 4, 8), "measured"
    )
    assert len({record["boot"] for record in records}) == 2


@pytest.mark.slow
def test_a_gate_that_asks_every_setting_leaves_the_others_their_boot(tmp_path) -> None:
    """None of these axes can change an answer, so the default alone is asked, before its server goes on to the next setting."""
    (tmp_path / "short.yaml").write_text(SHORT_EVAL)
    gate = f"gate: {{eval: {tmp_path / 'short.yaml'}, margin: 0.9, repeat: 1, ask: settings}}\n"
    (tmp_path / "shared.yaml").write_text(STUDY.replace("PROPOSER", "grid") + gate)
    sweep(tmp_path)
    records = records_of(tmp_path)
    assert len({record["boot"] for record in records}) == 2
    assert [record["phase"] for record in records] == ["search", "gate", *["search"] * 5]
    assert records[0]["boot"] == records[1]["boot"] == records[2]["boot"]
