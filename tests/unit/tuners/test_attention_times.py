"""What times of kernels let expect of settings."""

from __future__ import annotations

import math
from pathlib import Path
from statistics import geometric_mean

import pytest

from dsabench.config.load import load_study
from dsabench.config.specs import StudyConfig
from dsabench.kernelbench.records import read
from dsabench.model.topology import SINGLE
from dsabench.tuners.attention_times import ExpectedSpeed
from factories import ENVIRONMENT, write_kernel_times
from studies import STUDY
from studies import load_study as load_text

ROOT = Path(__file__).parents[3]

TIMES = {
    "dense_prefill torch_mha bf16": lambda b, q, kv: 0.01 * b * q * kv,
    "kv_expand torch_mm bf16": lambda b, q, kv: 2.0 * b * kv,
    "sparse_prefill torch_flashmla_kv fp8": lambda b, q, kv: 8.0 * b * q,
    "sparse_prefill torch_flashmla_sparse fp8": lambda b, q, kv: 5.0 * b * q * kv**0.1,
    "indexer_ragged torch_by_head bf16": lambda b, q, kv: 0.02 * b * q * kv,
    "topk_select torch_select bf16": lambda b, q, kv: 0.5 * b * q,
    "absorb torch_bmm bf16": lambda b, q, kv: 1.0 * b * q,
    "sparse_decode torch_flashmla_kv fp8": lambda b, q, kv: 30.0 * b**0.5 * kv**0.2,
}
"""Power laws, which are straight in logarithms: what is interpolated is exact."""

LOAD = "{name: one, dataset: random-ids, input_len: 100, output_len: 9, num_prompts: 12, max_concurrency: 4}"


def study(folder: Path, load: str = LOAD) -> StudyConfig:
    before, after = STUDY.partition("workloads:\n")[0], STUDY.partition("sweeps:\n")[2]
    return load_text(folder, f"{before}workloads:\n  - {load}\nsweeps:\n{after}")


@pytest.fixture
def speed(tmp_path: Path) -> tuple[StudyConfig, ExpectedSpeed]:
    config = study(tmp_path)
    write_kernel_times(tmp_path / "kernels", ENVIRONMENT, TIMES)
    return config, ExpectedSpeed(config, read(tmp_path / "kernels"))


def decode_us(batch: int) -> float:
    return 8 * 30.0 * batch**0.5 * 104**0.2 / batch


def test_a_prompt_is_prefilled_in_pieces_by_the_kernels_that_the_setting_takes(speed) -> None:
    config, expected = speed
    knobs = {"chunked_prefill_size": 40, "mha_threshold_tokens": 80, "kv_cache_dtype": "fp8_e4m3"}
    dense = sum(0.01 * 40 * kv + 2.0 * kv for kv in (40, 80))
    beside = 0.02 * 20 * 100 + (0.5 + 1.0) * 20
    for kernel, own in (("flashmla_kv", 8.0 * 20), ("flashmla_sparse", 5.0 * 20 * 100**0.1)):
        found = expected.of(config.spec({**knobs, "prefill_backend": kernel}))
        assert found == pytest.approx(1.0 / (dense + beside + own + decode_us(4)))
    always = expected.of(config.spec({**knobs, "prefill_backend": "flashmla_kv", "mha_threshold_tokens": 0}))
    pieces = ((40, 40), (40, 80), (20, 100))
    sparse = sum((8.0 + 0.5 + 1.0) * new + 0.02 * new * kv for new, kv in pieces)
    assert always == pytest.approx(1.0 / (sparse + decode_us(4)))


def test_what_runs_at_once_shares_a_step(speed) -> None:
    config, expected = speed
    found = [expected.of(config.spec({"pp_max_micro_batch_size": limit})) for limit in (1, 2, 4, 8)]
    assert None not in found
    assert found[0] < found[1] < found[2] == found[3], "four are in flight"
    assert 1 / found[0] - 1 / found[2] == pytest.approx(decode_us(1) - decode_us(4))


def test_replicas_of_the_reference_runtime_share_its_cores(speed) -> None:
    config, expected = speed
    one, two = (expected.of(config.spec({"dp_size": size})) for size in (1, 2))
    assert two < one, "each runs half as many at once"


def test_a_setting_whose_kernel_was_not_timed_has_no_speed(speed, tmp_path: Path) -> None:
    config, expected = speed
    assert expected.of(config.spec({"kv_cache_dtype": "bfloat16"})) is None
    assert expected.of(config.spec({"prefill_backend": "triton"})) is None
    for split in ({"pp_size": 2}, {"attn_cp_size": 2}, {"prefill_cp": True}):
        assert expected.of(config.spec(split)) is None
    whole = config.default
    assert expected.of(whole.model_copy(update={"topology": SINGLE})) == expected.of(whole)
    assert ExpectedSpeed(config, ()).of(config.default) is None
    chats = study(tmp_path, "{name: one, dataset: sharegpt, num_prompts: 12, max_concurrency: 4}")
    assert ExpectedSpeed(chats, read(tmp_path / "kernels")).of(chats.default) is None


def test_lengths_of_a_range_and_workloads_count_alike(tmp_path: Path) -> None:
    write_kernel_times(tmp_path / "kernels", ENVIRONMENT, TIMES)
    measured = read(tmp_path / "kernels")

    def of(*loads: str) -> float:
        config = study(tmp_path, "\n  - ".join(loads))
        return ExpectedSpeed(config, measured).of(config.default)

    short, long = LOAD.replace("output_len: 9", "output_len: 1"), LOAD.replace("100", "200").replace("one", "two")
    assert of(short, long) == pytest.approx(geometric_mean([of(short), of(long)]))
    mixed = of(short.replace("input_len: 100", "input_len: 100, range_ratio: 0.6"))
    lengths = [of(short.replace("100", str(length))) for length in (65, 75, 85, 95)]
    assert 1 / mixed == pytest.approx(sum(1 / one for one in lengths) / 4)


def test_the_committed_times_expect_what_was_measured_on_the_same_gpu() -> None:
    """results/h200-landscape, where a chunk takes all of most prompts: dense attention up to 8,192 tokens was faster everywhere."""
    config = load_study(ROOT / "configs" / "h200-landscape.yaml")
    expected = ExpectedSpeed(config, read(ROOT / "results" / "h200" / "kernels"))
    common = {"chunked_prefill_size": 4096, "pp_max_micro_batch_size": 24}

    def of(**changes: object) -> float | None:
        return expected.of(config.spec({**common, **changes}))

    sparse, kv = (
        of(prefill_backend=name, mha_threshold_tokens=2048, kv_cache_dtype="fp8_e4m3")
        for name in ("flashmla_sparse", "flashmla_kv")
    )
    dense = of(prefill_backend="flashmla_kv", mha_threshold_tokens=8192, kv_cache_dtype="fp8_e4m3")
    assert kv < sparse < dense
    assert math.isclose(dense, of(prefill_backend="flashmla_sparse", mha_threshold_tokens=8192)), "no sparse piece"
    assert of(prefill_backend="flashmla_sparse", kv_cache_dtype="bfloat16", mha_threshold_tokens=2048) is None
