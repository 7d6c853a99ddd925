"""Launch settings of a rank: what fits is tried first, and the winner becomes flags of a deployment and words for a maintainer."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from dsabench.cli.main import run
from dsabench.config.load import load_study
from dsabench.config.specs import StudyConfig
from dsabench.emit.launch_text import launch_text
from dsabench.emit.tables import write_table
from dsabench.errors import InputError
from dsabench.model.study_result import ObjectiveScore, ScoredSetting, StudyResult
from dsabench.model.tuned_table import LaunchRule, TunedTable
from dsabench.model.verdict import Verdict
from dsabench.tuners.launch import plan_launch, table_of
from factories import ENVIRONMENT, make_record

RANK = "configs/h200-rank.yaml"
DEPLOYMENT = {
    "name": "eight",
    "runtime": {
        "kind": "sglang",
        "version": "0.5.16",
        "model": "deepseek-ai/DeepSeek-V3.2",
        "hardware": "h200",
        "base": {"tp_size": 8, "dp_size": 8, "dp_attention": True, "ep_size": 8, "kv_cache_dtype": "bfloat16"},
    },
}


@pytest.fixture
def rank() -> StudyConfig:
    return load_study(RANK)


def result_of(config: StudyConfig, word: str = "better", **knobs) -> StudyResult:
    spec = config.spec({"chunked_prefill_size": 8192, "max_running_requests": 16, **knobs})
    low, high = (0.21, 0.4) if word == "better" else (-0.1, 0.1)
    verdict = Verdict(
        metric="capacity_req_s", workload="mix", n_base=5, n_candidate=5, effect=0.3, reason="r", verdict=word,
        ci_low=low, ci_high=high,
    )  # fmt: skip
    part = {"gpus": 8, "dp": 8, "ep": 8, "of_layers": 61, "layers": 61}
    told = {"resolved": {"dsabench": {"slice": part}}, "labels": ("random weights", "one of 4 lanes")}
    records = tuple(
        make_record(spec=one, workload=config.workloads[0]).model_copy(update=told) for one in (config.default, spec)
    )
    return StudyResult(
        ENVIRONMENT, records, 0, (), ScoredSetting(spec, "best", ObjectiveScore(1.0, 0.0)), (verdict,), None
    )


def test_the_largest_chunks_that_fit_are_measured_first(rank: StudyConfig) -> None:
    plan = plan_launch(rank)
    assert [one["chunked_prefill_size"] for one in plan.config.space.enqueued] == [16384, 8192]
    # The full step of 16,384 tokens leaves room beside this fraction of the memory, and not beside the next one.
    assert plan.config.space.enqueued[0]["mem_fraction_static"] == 0.88
    assert plan.arithmetic[0].startswith("chunk 512: fits up to mem_fraction_static 0.92, with 429,440 tokens")
    assert "chunk 16,384: fits up to mem_fraction_static 0.88" in plan.arithmetic[-1]


def test_a_chunk_that_fits_nowhere_is_told_and_not_tried_first(rank: StudyConfig) -> None:
    axes = tuple(
        axis.model_copy(update={"values": (0.92,)}) if axis.name == "mem_fraction_static" else axis
        for axis in rank.space.axes
    )
    plan = plan_launch(rank.model_copy(update={"space": rank.space.model_copy(update={"axes": axes})}))
    assert plan.arithmetic[-1] == "chunk 16,384: no memory fraction of the axis fits"
    assert [one["chunked_prefill_size"] for one in plan.config.space.enqueued] == [8192, 4096]


def test_it_needs_chunks_to_choose_among(tmp_path: Path, rank: StudyConfig) -> None:
    axes = tuple(axis for axis in rank.space.axes if axis.name != "chunked_prefill_size")
    space = rank.space.model_copy(update={"axes": axes})
    with pytest.raises(InputError, match="tune launch needs the axis chunked_prefill_size"):
        plan_launch(rank.model_copy(update={"space": space}))


def table(rank: StudyConfig) -> TunedTable:
    made, said = table_of(rank, result_of(rank), "dsabench tune launch h200-rank")
    assert made is not None
    assert said == "better with chunked_prefill_size=8192 max_running_requests=16"
    return made


def test_the_table_is_for_one_gpu_heads_and_strategy(rank: StudyConfig) -> None:
    made = table(rank)
    assert made.file_name == ("launch,strategy=dp8-ep8,H=128,topk=2048,device_name=NVIDIA_H200,kv_dtype=bfloat16.json")
    assert isinstance(made.rule, LaunchRule)
    assert dict(made.rule.settings) == {"chunked_prefill_size": 8192, "max_running_requests": 16}
    assert dict(made.rule.instead_of) == {"chunked_prefill_size": 1024, "max_running_requests": 2048}
    assert made.rule.groups == 8
    assert TunedTable.model_validate_json(made.model_dump_json()) == made


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"word": "inconclusive"}, "not better than the base: mix: inconclusive"),
        ({"kv_cache_dtype": "fp8_e4m3"}, "accuracy unproven: kv_cache_dtype may change answers"),
    ],
)
def test_what_is_no_gain_or_unproven_becomes_no_table(rank: StudyConfig, change: dict[str, str], said: str) -> None:
    made, standing = table_of(rank, result_of(rank, **change), "c")
    assert made is None
    assert standing.startswith(said)


def test_a_deployment_asks_for_as_much_as_all_its_groups(rank: StudyConfig, tmp_path: Path, capsys) -> None:
    file = write_table(tmp_path, table(rank))
    config = tmp_path / "eight.yaml"
    config.write_text(yaml.safe_dump(DEPLOYMENT))
    out = tmp_path / "out"
    assert run(["emit", str(file), "--as", "command", "--config", str(config), "--out", str(out)]) == 0
    base = yaml.safe_load((out / "best.yaml").read_text())["runtime"]["base"]
    assert (base["chunked_prefill_size"], base["max_running_requests"]) == (65536, 128)
    script = (out / "best.sh").read_text()
    assert "--chunked-prefill-size 65536" in script
    assert "--max-running-requests 128" in script
    # One rank's server, as the study ran it, takes the values as they are.
    assert run(["emit", str(file), "--as", "command", "--config", RANK, "--out", str(out)]) == 0
    assert "--chunked-prefill-size 8192" in (out / "best.sh").read_text()
    other = {
        **DEPLOYMENT,
        "runtime": {**DEPLOYMENT["runtime"], "base": {**DEPLOYMENT["runtime"]["base"], "ep_size": 1}},
    }
    config.write_text(yaml.safe_dump(other))
    capsys.readouterr()
    assert run(["emit", str(file), "--as", "command", "--config", str(config), "--out", str(out)]) == 2
    assert "is for the strategy dp8,ep8, the config has dp8" in capsys.readouterr().err


def test_the_text_says_the_conditions_first_and_what_to_ask_for(rank: StudyConfig, tmp_path: Path, capsys) -> None:
    made = table(rank)
    text = launch_text([made], "1")
    assert text.index("Conditions:") < text.index("| setting |") < text.index("Effect:") < text.index("Accuracy:")
    assert (
        "| setting | today, of one rank | advised, of one rank | to ask for, with 8 groups |\n|---|---|---|---|\n"
        in text
    )
    assert "- That model is what one of 8 GPUs computes (dp 8, ep 8): between settings of one rank it compares" in text
    assert "- Random weights: these are speeds" in text
    assert "| chunked_prefill_size | 1024 | 8192 | 65536 |" in text
    assert "DP attention divides chunked_prefill_size and max_running_requests among its 8 groups." in text
    assert (
        "Effect: capacity_req_s +30.0% (+21.0% to +40.0%), 5 boots a side, in turns; the interval has 95 % or more."
        in text
    )
    assert "- Measured as one of 4 lanes of one host" in text
    assert (
        "- workload mix: 32 prompts of mooncake, 2 a second (poisson), the highest of them that meets the SLO" in text
    )
    assert "mix: the highest load under which 90% of the requests have TTFT ≤ 3000 ms and TPOT ≤ 50 ms" in text
    file = write_table(tmp_path, made)
    assert run(["emit", str(file), "--as", "text", "--out", str(tmp_path / "words"), "--json"]) == 0
    (path,) = json.loads(capsys.readouterr().out)
    assert Path(path).read_text().startswith("## Launch settings: NVIDIA H200, dp8,ep8, 128 heads a rank")
    assert run(["emit", str(file), "--as", "plugin", "--out", str(tmp_path)]) == 2
    assert "flags of sglang say it already: --as command" in capsys.readouterr().err


STUDY = """
name: chunks
runtime:
  kind: reference
  model: tiny
  base: {chunked_prefill_size: 16, max_running_requests: 4}
workloads:
  - {name: long, dataset: random-ids, input_len: 768, output_len: 2, num_prompts: 8, max_concurrency: 1}
sweeps:
  - axes: {chunked_prefill_size: [16, 512]}
objective: {metric: total_throughput_tok_s, direction: maximize}
budget: {confirm_boots: 3}
"""


@pytest.mark.slow
def test_a_study_of_chunks_ends_in_a_table_and_its_command(tmp_path: Path) -> None:
    """On real servers: a chunk of 16 tokens takes many times the steps of one of 512."""
    (tmp_path / "chunks.yaml").write_text(STUDY)

    def dsabench(*words: str) -> str:
        command = [sys.executable, "-m", "dsabench", *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, cwd=tmp_path)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    tuned = json.loads(dsabench("tune", "launch", "chunks.yaml", "--results", "out", "--json"))
    assert tuned["standing"] == "better with chunked_prefill_size=512"
    assert json.loads((tmp_path / tuned["table"]).read_text())["rule"]["settings"] == {"chunked_prefill_size": 512}
    dsabench("emit", tuned["table"], "--as", "command", "--config", "chunks.yaml", "--out", "launch")
    assert "--chunked-prefill-size 512" in (tmp_path / "launch" / "best.sh").read_text()
    dsabench("emit", tuned["table"], "--as", "text", "--out", "launch")
    assert "with 8 groups" not in (tmp_path / "launch" / "launch-settings.md").read_text()
