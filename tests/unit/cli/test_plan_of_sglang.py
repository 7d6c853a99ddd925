"""`dsabench sweep --dry-run` of a study of sglang, where no sglang is installed."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from dsabench.sglang.resolve import adding
from program import dsabench
from sglang_wheel import VERSION, build_wheel

STUDY = """
name: study
runtime:
  kind: sglang
  model: deepseek-ai/DeepSeek-V3.2
  version: 0.5.16
  hardware: h200
  launch: {python: /no/such/python}
  base: {tp_size: 8, kv_cache_dtype: fp8_e4m3, prefill_backend: flashmla_kv, decode_backend: flashmla_kv}
workloads:
  - {name: one, dataset: random-ids, input_len: 48, output_len: 4, num_prompts: 12, max_concurrency: 2}
sweeps:
  - axes: {decode_backend: [flashmla_kv, AUTO], chunked_prefill_size: [8192, 16384]}
objective: {metric: output_throughput_tok_s, direction: maximize}
budget: {confirm_boots: 2}
"""


def plan(text: str, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    (folder / "study.yaml").write_text(text)
    return dsabench("sweep", "study.yaml", "--dry-run", *words, cwd=folder, COLUMNS="120")


def test_the_plan_counts_what_the_rules_refuse_and_the_gpu_hours_of_the_rest(tmp_path) -> None:
    done = plan(STUDY.replace("AUTO", "flashmla_auto"), tmp_path, "--json")
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said["refused"].pop("lines")["BE19"].startswith("BE19: ")
    assert said["refused"] == {"points": 2, "asked": 4, "all_asked": True, "by_rule": {"BE19": 2}}
    assert said["boots"] == 3 + 4
    assert said["gpu_hours"] == pytest.approx((7 * 8 * 310 + 8 * 150) / 3600, abs=0.01)
    assert not (tmp_path / "results").exists()


def test_without_a_version_the_newest_one_is_planned_for(tmp_path) -> None:
    done = plan(STUDY.replace("  version: 0.5.16\n", "").replace("AUTO", "flashmla_sparse"), tmp_path)
    assert done.returncode == 0, done.stderr
    assert "planned for sglang 0.5.23, which is not installed here" in done.stderr


def test_for_people_too(tmp_path) -> None:
    done = plan(STUDY.replace("AUTO", "flashmla_auto"), tmp_path)
    assert "2 of 4 points are refused by the rules, without a boot: BE19 2" in done.stdout
    assert "  BE19: " in done.stdout
    assert "GPU-hours" in done.stdout


ASKED = """
name: asked
runtime:
  kind: sglang
  model: deepseek-ai/DeepSeek-V3.2
  version: {version}
  hardware: h200
  launch: {{python: /no/such/python}}
  base: {{tp_size: 8}}
workloads:
  - {{name: one, dataset: random-ids, input_len: 48, output_len: 4, num_prompts: 12, max_concurrency: 2}}
sweeps:
  - axes: {{max_running_requests: [64, 1], dp_size: [1, 3, 8]}}
objective: {{metric: output_throughput_tok_s, direction: maximize}}
budget: {{confirm_boots: 2}}
"""


def test_the_runtimes_own_checks_say_what_it_refuses_and_what_runs_as_something_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    adding.add_release(str(build_wheel(tmp_path)), lambda _: None)
    done = plan(ASKED.format(version=VERSION), tmp_path)
    assert done.returncode == 0, done.stderr
    said = " ".join(done.stdout.split())
    assert "4 of 6 points are refused by the rules, without a boot: server_args.py:" in said
    assert f"sglang {VERSION} refuses it: ValueError: tp_size 8 must be divisible by dp_size 3" in said
    assert "2 of the 2 others would run with other values than requested, and still cost a boot" in said
    assert "max_running_requests: asked 64, runs with 32" in said


def test_a_load_with_a_schedule_takes_at_least_that_long(tmp_path) -> None:
    """120 requests at 2 a second are sent for a minute, whatever the machine."""
    text = STUDY.replace("AUTO", "flashmla_sparse").replace(
        "num_prompts: 12, max_concurrency: 2", "num_prompts: 120, request_rate: 2"
    )
    said = json.loads(plan(text, tmp_path, "--json").stdout)
    assert said["estimated_s"] == pytest.approx(said["boots"] * 360 + 150)


def test_an_illegal_default_ends_in_one_line_that_names_the_rule(tmp_path) -> None:
    illegal = STUDY.replace("AUTO", "flashmla_auto").replace(
        "decode_backend: flashmla_kv}", "decode_backend: flashmla_auto}"
    )
    done = plan(illegal, tmp_path)
    assert done.returncode == 2
    last = done.stderr.splitlines()[-1]
    assert last.startswith("error: runtime.base: BE19: ")
    assert "Traceback" not in done.stderr


OPEN = STUDY.replace("[flashmla_kv, AUTO]", "[flashmla_kv]") + "proposer: {kind: tpe}\n"


def test_settings_that_the_proposer_is_still_to_choose_take_gpus_too(tmp_path) -> None:
    said = json.loads(plan(OPEN, tmp_path, "--json").stdout)
    assert (said["boots"], len(said["settings"])) == (3 + 4, 1)
    assert said["gpu_hours"] == pytest.approx((7 * 8 * 310 + 8 * 150) / 3600, abs=0.01)
    shown = plan(OPEN, tmp_path).stdout
    assert "about 5.2 GPU-hours (6 boots of unknown settings count as 8 GPUs each, the largest)" in shown


def test_open_settings_count_as_the_largest_of_the_space(tmp_path) -> None:
    small = OPEN.replace("  hardware: h200\n", "").replace("base: {tp_size: 8", "base: {tp_size: 4")
    small = small.replace("- axes: {", "- axes: {tp_size: [4, 8], ")
    done = plan(small, tmp_path, "--json")
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said["boots"] == 5 + 4
    assert said["gpu_hours"] == pytest.approx(((4 + 8 * 8) * 310 + 4 * 150) / 3600, abs=0.01)
