"""Which changes may change answers, and which of them by more than rounding."""

from __future__ import annotations

import pytest

from dsabench.model.numerics import changed_numerics, other_precision
from dsabench.model.runtime import RuntimeSpec


def spec(**knobs) -> RuntimeSpec:
    return RuntimeSpec(kind="sglang", model="m", knobs=knobs)


@pytest.mark.parametrize(
    ("one", "other", "may_change", "precision"),
    [
        ({"chunked_prefill_size": 1024}, {"chunked_prefill_size": 8192}, (), ()),
        ({"decode_backend": "fa3"}, {"decode_backend": "flashmla_sparse"}, ("decode_backend",), ()),
        ({"decode_backend": "flashmla_kv"}, {"decode_backend": "trtllm"}, ("decode_backend",), ("decode_backend",)),
        ({"prefill.prefill_backend": "fa3"}, {}, ("prefill.prefill_backend",), ("prefill.prefill_backend",)),
        ({"kv_cache_dtype": "bfloat16"}, {"kv_cache_dtype": "fp8_e4m3"}, ("kv_cache_dtype",), ("kv_cache_dtype",)),
        ({}, {"args.new_thing": 1}, ("args.new_thing",), ("args.new_thing",)),
        (
            {"decode_backend": "fa3", "mha_threshold_tokens": 2048},
            {"decode_backend": "tilelang", "mha_threshold_tokens": 8192},
            ("decode_backend", "mha_threshold_tokens"),
            ("mha_threshold_tokens",),
        ),
    ],
)
def test_two_kernels_of_one_precision_differ_by_rounding_alone(one, other, may_change, precision) -> None:
    assert changed_numerics(spec(**one), spec(**other)) == may_change
    assert other_precision(spec(**one), spec(**other)) == precision


def test_a_variable_counts_as_other_arithmetic() -> None:
    with_variable = spec().model_copy(update={"env": {"SGLANG_X": "1"}})
    assert changed_numerics(spec(), with_variable) == other_precision(spec(), with_variable) == ("SGLANG_X",)
