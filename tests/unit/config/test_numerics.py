"""Which changes may change answers, and which of them by more than rounding."""

from __future__ import annotations

import pytest

from dsabench.errors import InputError
from dsabench.model.numerics import changed_numerics, other_precision
from dsabench.model.runtime import RuntimeSpec
from studies import STUDY, load_study


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


def test_a_role_that_says_what_all_servers_have_changes_nothing() -> None:
    plain, role = (
        spec(kv_cache_dtype="bfloat16"),
        spec(kv_cache_dtype="bfloat16", **{"decode.kv_cache_dtype": "bfloat16"}),
    )
    assert other_precision(plain, role) == ()
    role = spec(kv_cache_dtype="bfloat16", **{"decode.kv_cache_dtype": "fp8_e4m3"})
    assert other_precision(plain, role) == ("decode.kv_cache_dtype",)


def test_a_config_that_keeps_numerics_has_to_say_them(tmp_path) -> None:
    text = STUDY.replace("direction: maximize", "direction: maximize, numerics: same")
    assert load_study(tmp_path, text).searched_space.forbid == ()
    lacking = text.replace("prefill_backend: flashmla_kv, ", "")
    with pytest.raises(InputError, match=r"numerics: same: runtime.base does not say prefill_backend, an axis"):
        load_study(tmp_path, lacking)
    assert load_study(tmp_path, lacking.replace(", numerics: same", "")).space.axes
