from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from dsabench.config.load import find_mistakes, load_published, published_file, published_names
from dsabench.errors import ConfigError
from dsabench.model.published import PublishedRun

COMPLETE = ("b200-latency", "b200-throughput", "h800-latency", "h800-throughput", "h800-throughput-fixed-lengths")


def load(name: str) -> PublishedRun:
    file = published_file(name)
    assert file is not None
    return load_published(file)


def test_every_shipped_run_loads_and_is_checked() -> None:
    assert set(COMPLETE) < set(published_names())
    for name in published_names():
        assert load(name).name == name
        file = published_file(name)
        assert file is not None
        assert find_mistakes(file) == ()


@pytest.mark.parametrize("name", COMPLETE)
def test_printed_figures_agree_with_each_other(name: str) -> None:
    """What follows from other figures on the page, to the digits printed: a slip in copying would show."""
    printed, asked = load(name).printed.figures, load(name).load
    n, seconds = printed["completed"], printed["duration"]
    assert n == asked.num_prompts
    half_digit = 0.005 + 0.005 / seconds * max(printed["input_throughput"], printed["output_throughput"])
    assert printed["request_throughput"] == pytest.approx(n / seconds, abs=0.006)
    assert printed["input_throughput"] == pytest.approx(printed["total_input_tokens"] / seconds, abs=half_digit)
    assert printed["output_throughput"] == pytest.approx(printed["total_output_tokens"] / seconds, abs=half_digit)
    total = printed["input_throughput"] + printed["output_throughput"]
    assert printed["total_throughput"] == pytest.approx(total, abs=0.011)
    assert printed["concurrency"] == pytest.approx(printed["mean_e2e_latency_ms"] / 1e3 * n / seconds, rel=0.001)
    assert printed["median_itl_ms"] <= printed["p95_itl_ms"] <= printed["p99_itl_ms"] <= printed["max_itl_ms"]
    for latency in ("ttft", "tpot", "itl"):
        assert printed[f"median_{latency}_ms"] <= printed[f"p99_{latency}_ms"]


@pytest.mark.parametrize("name", ["h800-latency", "h800-throughput"])
def test_totals_prove_dataset_and_seed(name: str) -> None:
    run = load(name)
    asked = run.load
    assert asked.num_prompts is not None
    rng = np.random.RandomState(asked.seed)
    lowest = max(math.floor(1024 * (asked.range_ratio or 0)), 1)
    totals = [int(rng.randint(lowest, 1025, size=asked.num_prompts).sum()) for _ in range(2)]
    assert totals == [run.printed.total_input_tokens, run.printed.total_output_tokens]


def test_mistakes_name_file_line_and_what_is_allowed(tmp_path: Path) -> None:
    file = published_file("b200-latency")
    assert file is not None
    text = file.read_text()
    wrong = tmp_path / "published" / "b200-latency.yaml"
    wrong.parent.mkdir()
    wrong.write_text(text.replace("mean_ttft_ms", "mean_tftt_ms"))
    with pytest.raises(ConfigError, match=r"b200-latency\.yaml:\d+: printed.*mean_ttft_ms"):
        load_published(wrong)
    assert len(find_mistakes(wrong)) == 1
    other = tmp_path / "other.yaml"
    other.write_text(text)
    with pytest.raises(ConfigError, match=r"the file is other\.yaml"):
        load_published(other)


def test_a_name_means_a_published_run_only_where_nothing_else_is_there(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert published_file("b200-latency") is not None
    assert published_file("published/b200-latency.yaml") is not None
    assert published_file("b200-latency#1") is None
    assert published_file("no-such-run") is None
    assert published_file("../b200-latency") is None
    (tmp_path / "b200-latency").mkdir()
    assert published_file("b200-latency") is None
