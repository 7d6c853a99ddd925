from __future__ import annotations

import math
from typing import Any

import pytest

from dsabench.config.load import load_published, published_file
from dsabench.errors import InputError
from dsabench.model.record import Measured, Metric
from dsabench.reporting.published_comparison import hold_beside
from dsabench.reporting.serving_run import ServingRun, logged_run, published_run, recorded_run
from factories import make_record, make_spec, make_workload

LINE: dict[str, Any] = {
    "backend": "sglang", "dataset_name": "random", "request_rate": math.inf, "max_concurrency": 1,
    "random_input_len": 1024, "random_output_len": 512, "random_range_ratio": 0.0, "duration": 48.0, "completed": 10,
    "mean_ttft_ms": 99.94, "accept_length": None, "output_throughput": 90.0,
    "server_info": {
        "version": "0.5.23", "model_path": "/models/DeepSeek-V3.2/", "tp_size": 16, "speculative_algorithm": None,
    },
}  # fmt: skip


def printed(name: str = "h800-latency") -> ServingRun:
    file = published_file(name)
    assert file is not None
    return published_run(load_published(file))


def test_figures_stand_side_by_side_with_their_ratio() -> None:
    beside = hold_beside(printed(), logged_run("mine", LINE))
    pairs = {pair.name: pair for pair in beside.figures}
    assert (pairs["mean_ttft_ms"].base, pairs["mean_ttft_ms"].candidate) == (199.88, 99.94)
    assert pairs["mean_ttft_ms"].change == pytest.approx(-0.5)
    assert (pairs["accept_length"].candidate, pairs["accept_length"].change) == (None, None)
    assert set(printed().figures) <= set(pairs)


def test_every_setting_that_differs_is_named() -> None:
    beside = hold_beside(printed(), logged_run("mine", LINE))
    assert {one.setting: (one.base, one.candidate) for one in beside.differing} == {
        "version": ("0.5.9", "0.5.23"),
        "output_len": (1024, 512),
        "request_rate": (64.0, "inf"),
        "speculative_algorithm": ("EAGLE", "none"),
    }
    untold = {one.setting for one in beside.untold}
    assert {"accelerator", "accelerators", "seed", "dp_size", "SGLANG_SET_CPU_AFFINITY"} <= untold
    assert not untold & {"model", "dataset", "tp_size"}


def test_lengths_of_a_dataset_that_brings_its_own_are_no_setting() -> None:
    run = logged_run("mine", {**LINE, "dataset_name": "sharegpt"})
    assert not run.settings.keys() & {"input_len", "output_len", "range_ratio"}
    assert "dataset" not in {one.setting for one in hold_beside(printed("b200-latency"), run).differing}


def test_a_zero_in_another_tools_file_is_no_latency() -> None:
    buffered = {f"{key}_{name}_ms": 0.0 for key in ("mean", "median", "p99") for name in ("tpot", "itl")}
    blind = logged_run("mine", {**LINE, **buffered})
    assert not [name for name in blind.figures if "median_tpot" in name or "mean_itl" in name]
    assert blind.notes == ("mine: 0 there for itl, tpot, which is how bench_serving writes what it did not observe",)


def test_there_is_no_verdict_and_it_says_why() -> None:
    said = hold_beside(printed(), printed("h800-throughput")).as_json()
    assert said["verdict"] is None
    assert "a single run has no spread" in said["reason"]
    assert said["differing"]["max_concurrency"] == {"base": 1, "candidate": 1024}


def test_records_give_the_mean_of_their_boots() -> None:
    workload = make_workload(dataset="random", dataset_path="x.json", max_concurrency=1)
    records = [
        make_record(
            workload=workload, spec=make_spec(kv_cache_dtype="fp8_e4m3"), occasion=i,
            outcome=Measured(metrics={"ttft_ms.mean": Metric(value=value, n=9), **extra}),
        )
        for i, (value, extra) in enumerate([(100.0, {}), (200.0, {"ttft_ms.p99": Metric(value=1.0, n=500)})])
    ]  # fmt: skip
    run = recorded_run("results", records)
    assert (run.boots, run.figures) == (2, {"mean_ttft_ms": 150.0})
    assert run.settings["kv_cache_dtype"] == "fp8_e4m3"
    assert run.settings["accelerator"] == "none"
    assert run.settings["request_rate"] == "inf"


def test_one_trial_is_compared_at_a_time() -> None:
    records = [make_record(spec=make_spec(page_size=size)) for size in (1, 64)]
    with pytest.raises(InputError, match="2 trials; name one as results#TRIAL"):
        recorded_run("results", records)
    with pytest.raises(InputError, match="nothing was measured there"):
        recorded_run("results", [])


def test_metrics_may_be_named_in_either_vocabulary() -> None:
    for metric in ("median_ttft_ms", "ttft_ms.p50"):
        [pair] = hold_beside(printed(), logged_run("mine", LINE), [metric]).figures
        assert pair.name == "median_ttft_ms"
    with pytest.raises(InputError, match="none of the metrics nonsense"):
        hold_beside(printed(), printed(), ["nonsense"])


@pytest.mark.parametrize("accelerator", ["NVIDIA H800", "h800", "H800"])
def test_an_accelerator_is_the_same_under_the_drivers_name(accelerator: str) -> None:
    mine = ServingRun("mine", {"accelerator": accelerator, "model": "deepseek-v3.2"}, {"duration": 1.0})
    assert not {"accelerator", "model"} & {one.setting for one in hold_beside(printed(), mine).differing}
