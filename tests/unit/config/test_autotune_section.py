"""The key `autotune` of a config: each tune is a study of its own that takes over what it leaves out."""

from __future__ import annotations

from pathlib import Path

import pytest

from dsabench.autotune.job import tuned_study
from dsabench.config.load import find_mistakes, load_study
from dsabench.study.study import Study

TEXT = """
name: t
runtime: {kind: reference, model: tiny, base: {kv_cache_dtype: bfloat16, chunked_prefill_size: 256}, launch: {env: {TOKEN: hidden}}}
workloads: [{name: one, dataset: random-ids, input_len: 48, output_len: 4, num_prompts: 12, max_concurrency: 2}]
sweeps: [chunked_prefill]
first: [{chunked_prefill_size: 256}]
objective: {metric: total_throughput_tok_s, direction: maximize}
budget: {max_trials: 4, confirm_boots: 2}
autotune:
  flashmla_auto:
    base: {kv_cache_dtype: fp8_e4m3}
    kernels: {shapes: [reftiny-*], spread: 0.4}
  mha_threshold:
    workloads: [{name: long, dataset: random-ids, input_len: 600, output_len: 1, num_prompts: 8, max_concurrency: 1}]
    sweeps: [{axes: {mha_threshold_tokens: [32, 1024]}}]
    budget: {confirm_boots: 4}
  proof: 2
"""


@pytest.fixture
def write(tmp_path):
    def written(text: str) -> Path:
        path = tmp_path / "t.yaml"
        path.write_text(text)
        return path

    return written


def test_a_tune_takes_over_what_it_leaves_out(write):
    config = load_study(write(TEXT))
    tunes = config.autotune
    assert tunes is not None
    assert tunes.proof == 2
    assert tunes.hisparse is tunes.mtp is None
    kernels, threshold = tunes.flashmla_auto, tunes.mha_threshold
    assert kernels is not None
    assert threshold is not None
    assert kernels.study.name == "t-flashmla-auto"
    assert dict(kernels.study.runtime.base) == {"kv_cache_dtype": "fp8_e4m3", "chunked_prefill_size": 256}
    assert kernels.study.workloads == config.workloads
    assert kernels.study.budget == config.budget
    assert (kernels.kernels.shapes, kernels.kernels.spread) == (("reftiny-*",), 0.4)
    # Sweeps and first settings belong to the one study.
    assert kernels.study.space.axes == kernels.study.first == ()
    assert [one.name for one in threshold.study.workloads] == ["long"]
    assert threshold.study.budget.confirm_boots == 4
    assert threshold.study.objective == config.objective


def test_the_winner_is_the_base_except_for_what_the_tune_decides(write):
    config = load_study(write(TEXT))
    winner = config.spec({"kv_cache_dtype": "fp8_e5m2", "chunked_prefill_size": 128, "mha_threshold_tokens": 64})
    tunes = config.autotune
    assert tunes is not None
    assert tunes.flashmla_auto is not None
    assert tunes.mha_threshold is not None
    base = dict(tuned_study(config, tunes.flashmla_auto, winner).runtime.base)
    assert base == {"kv_cache_dtype": "fp8_e4m3", "chunked_prefill_size": 128, "mha_threshold_tokens": 64}
    base = dict(tuned_study(config, tunes.mha_threshold, winner).runtime.base)
    assert base == {"kv_cache_dtype": "fp8_e5m2", "chunked_prefill_size": 128}
    assert tuned_study(config, tunes.mha_threshold, None) == tunes.mha_threshold.study


def test_a_variable_of_the_command_line_reaches_every_tune(write):
    config = Study.from_config(write(TEXT), launch_env=["PYTHONPATH=/opt/other"]).config
    assert config.autotune is not None
    assert config.autotune.mha_threshold is not None
    assert tuned_study(config, config.autotune.mha_threshold, None).runtime.launch.env["PYTHONPATH"] == "/opt/other"


@pytest.mark.parametrize(
    ("edit", "place", "said"),
    [
        (("{kv_cache_dtype: fp8_e4m3}", "{kv_cache_dtype: fp9}"), (11, "autotune.flashmla_auto.base.kv_cache_dtype"), "not 'fp9'"),
        (("[32, 1024]}}]", "[32, 1024], qwer: [1]}}]"), (15, "autotune.mha_threshold.sweeps[0].axes.qwer"), "unknown knob"),
        (("name: long, dataset: random-ids", "name: long, dataset: custom"), (14, "autotune.mha_threshold.workloads[0]"), "dataset_path"),
        (("budget: {confirm_boots: 4}", "budget: {confirm_boots: 4, max_boots: 3}"), (16, "autotune.mha_threshold.budget.max_boots"), ""),
        (("proof: 2", "proof: 1"), (17, "autotune.proof"), "at least 2"),
        (("mha_threshold:\n", "mha_treshold:\n"), (13, "autotune.mha_treshold"), "did you mean mha_threshold?"),
    ],
)  # fmt: skip
def test_a_mistake_is_named_where_it_stands(write, edit, place, said):
    assert edit[0] in TEXT
    mistake = find_mistakes(write(TEXT.replace(*edit)))[0]
    assert (mistake.line, mistake.key) == place
    assert said in mistake.message
