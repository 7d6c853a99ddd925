"""Server times against sums of kernel times: sums that can be made by hand, and the committed measurements."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dsabench.errors import InputError
from dsabench.microbench.table import read_points
from dsabench.model.prefill_time import PrefillTime
from dsabench.reporting.kernel_shares import shares
from dsabench.reporting.prefill_sum import LayerTimes, layer_times, predict_series
from dsabench.store.prefill_times import read_prefill_times
from program import dsabench

H200 = Path(__file__).parents[3] / "results" / "h200"


def server_time(new, ms, backend="flashmla_sparse", threshold=2048, chunk=16384, **more):
    about = {"series": "s", "source": "t", "layers": 2, "prefill_backend": backend, "mha_threshold_tokens": threshold}
    return PrefillTime(**about, chunk_tokens=chunk, new_tokens=new, ms=ms, **more)


def test_a_step_is_dense_up_to_the_threshold_and_sparse_beyond():
    linear = [(0, 10.0), (100, 20.0)]
    layers = LayerTimes(
        {
            ("kv_expand", "torch_mm", 0): linear,
            ("dense_prefill", "fa3_varlen", 50): linear,
            ("absorb", "torch_bmm", 0): linear,
        }
        | {(op, name, 50): linear for op, name in (("indexer_ragged", "deep_gemm"), ("topk_select", "sgl_kernel"))}
        | {("sparse_prefill", "flashmla_kv", 50): [(0, 100.0), (100, 300.0)]}
    )
    assert layers.step_us("flashmla_kv", 100, (50, 50)) == 20.0 + 15.0  # kv_expand of 100 tokens, dense behind 50
    assert layers.step_us("flashmla_kv", 99, (50, 50)) == 15.0 + 15.0 + 15.0 + 200.0
    assert layers.step_us("flashmla_kv", 0, (50, 200)) == 15.0 + 30.0 + 30.0 + 500.0  # on through the last two
    with pytest.raises(InputError, match="no time of sparse_prefill by flashmla_sparse_dequantise for 50 new tokens"):
        layers.step_us("flashmla_sparse", 0, (50, 0))


def test_a_prompt_is_cut_into_chunks_behind_what_is_cached():
    assert server_time(5000, 1.0, chunk=2048, cached_tokens=64).steps == ((2048, 64), (2048, 2112), (904, 4160))


def test_what_the_rest_was_fitted_to_is_met_and_not_judged():
    measured = read_points(H200 / "kernels")
    times = read_prefill_times(H200 / "by-hand" / "prefill.jsonl")
    deep = [time for time in times if time.layers == 20]
    series = predict_series(deep, measured)
    fitted = [point for point in series.points if point.is_fitted]
    assert len(fitted) == 3
    assert {point.time.setting for point in fitted} == {("flashmla_sparse", 2048, 16384)}
    assert all(abs(point.error) < 1e-9 for point in fitted)
    assert len(series.judged) == len(deep) - 3


def test_the_sum_of_the_h200s_kernels_predicts_its_servers_within_10_percent():
    measured = read_points(H200 / "kernels")
    times = read_prefill_times(H200 / "by-hand" / "prefill.jsonl")
    deep = predict_series([time for time in times if time.layers == 20], measured)
    assert sum(abs(point.error) <= 0.1 for point in deep.judged) == 30
    assert {point.time.new_tokens for point in deep.judged if abs(point.error) > 0.1} == {2048}
    swept = predict_series(read_prefill_times(H200 / "slice"), measured)
    assert all(abs(point.error) <= 0.1 for point in swept.judged)
    assert len(swept.judged) == 4


def test_without_the_setting_that_the_rest_comes_from_there_is_no_sum():
    measured = read_points(H200 / "kernels")
    with pytest.raises(InputError, match="no time with flashmla_sparse"):
        predict_series([server_time(4096, 50.0, "flashmla_kv")], measured)
    with pytest.raises(InputError, match="none is left to predict"):
        predict_series([server_time(4096, 50.0)], measured)
    assert not layer_times(measured, "v3.2", 4).curves


def test_shares_count_only_where_another_candidate_was_timed():
    found = {(s.operator, s.dtype, s.rank, s.candidate): s for s in shares(read_points(H200 / "kernels"))}
    alone = found["dense_prefill", "bf16", "v3.2-h128", "fa3_varlen"]
    assert (alone.shapes, alone.compared, alone.fastest) == (54, 0, 0)
    pair = [found["sparse_decode", "fp8", "v3.2-h128", name] for name in ("flashmla_kv", "triton")]
    assert [share.fastest for share in pair] == [21, 0]
    assert pair[0].of_fastest == 1.0
    assert 0.4 < pair[1].lowest <= pair[1].of_fastest < 0.6


def test_the_command_says_what_was_fitted_and_how_far_off_the_rest_is(tmp_path):
    predict = ("kernels", "predict", "--results", H200 / "kernels")
    done = dsabench(*predict, H200 / "slice")
    assert done.returncode == 0, done.stderr
    assert "4 of 4 predicted within 10%" in done.stdout
    plain = dsabench(*predict, H200 / "slice", "--json")
    (series,) = json.loads(plain.stdout)
    assert sum(point["is_fitted"] for point in series["points"]) == 2
    bad = tmp_path / "times.jsonl"
    bad.write_text('{"series": "s"}\n')
    refused = dsabench(*predict, bad)
    assert refused.returncode == 2
    assert refused.stderr.count("\n") == 1
    assert "times.jsonl:1: source: Field required" in refused.stderr


def test_dense_and_sparse_attention_of_a_layer_cross_where_the_prefix_grows():
    layer = ("kernels", "layer", "--results", H200 / "kernels", "--json")
    rows = json.loads(dsabench(*layer).stdout)
    faster = {(row["new_tokens"], row["cached_tokens"]): row["faster"] for row in rows}
    assert len(rows) == 49  # 5 of the 54 shapes have 4 sequences
    assert (faster[4096, 0], faster[4096, 16384], faster[64, 1024]) == ("dense", "sparse", "sparse")
    no = dsabench(*layer, "--heads", "4")
    assert (no.returncode, no.stderr.count("\n")) == (2, 1)
