from __future__ import annotations

from pathlib import Path

import pytest

from dsabench.model.value import KnobValue
from dsabench.sglang.accepts import from_table
from dsabench.sglang.readback import differences, facts_in, settings_of
from dsabench.sglang.versions import parse_version

LOG = (Path(__file__).parent / "logs" / "ready_h200_0.5.16.txt").read_text()
ACCEPTED = from_table(parse_version("0.5.16"))


def test_what_the_log_of_a_boot_tells() -> None:
    assert facts_in(LOG) == {
        "kv_cache_dtype": "fp8_e4m3",
        "prefill_backend": "flashmla_kv",
        "decode_backend": "flashmla_kv",
        "weights_s": 0.31,
        "weights_gb": 15.4,
        "kv_dtype": "torch.float8_e4m3fn",
        "kv_tokens": 18171456,
        "kv_gb": 106.69,
        "graphs_s": 164.94,
        "graphs_gb": 0.12,
        "max_total_num_tokens": 18171456,
        "chunked_prefill_size": 1024,
        "max_prefill_tokens": 16384,
        "max_running_requests": 32,
        "context_len": 32768,
        "left_gb": 16.13,
    }


def test_older_words_for_the_same() -> None:
    log = "Set NSA backends for bfloat16 KV Cache: prefill=flashmla_sparse, decode=fa3.\nCapture cuda graph end. Time elapsed: 1.5 s. mem usage=1.2 GB."
    assert facts_in(log) == {
        "kv_cache_dtype": "bfloat16",
        "prefill_backend": "flashmla_sparse",
        "decode_backend": "fa3",
        "graphs_s": 1.5,
        "graphs_gb": 1.2,
    }


@pytest.mark.parametrize(
    ("knobs", "info", "lines"),
    [
        (
            {"chunked_prefill_size": 8192},
            {"chunked_prefill_size": 1024},
            ("chunked_prefill_size: asked 8192, runs with 1024",),
        ),
        (
            {"chunked_prefill_size": 8192, "dp_attention": True, "dp_size": 4},
            {"chunked_prefill_size": 2048, "enable_dp_attention": True, "dp_size": 4},
            ("chunked_prefill_size: asked 8192, runs with 2048 per rank (asked ÷ 4 groups of the attention)",),
        ),
        (
            {"chunked_prefill_size": 8192, "dp_attention": True, "dp_size": 4},
            {"chunked_prefill_size": 1024, "enable_dp_attention": True, "dp_size": 4},
            ("chunked_prefill_size: asked 8192, runs with 1024",),
        ),
        ({"page_size": 128}, {"page_size": 64}, ("page_size: asked 128, runs with 64",)),
        ({"prefix_cache": True}, {"disable_radix_cache": True}, ("prefix_cache: asked true, runs with false",)),
        ({"mixed_chunk": True}, {"enable_mixed_chunk": False}, ("mixed_chunk: asked true, runs with false",)),
        ({"dp_attention": True, "dp_size": 8}, {"enable_dp_attention": True, "dp_size": 8}, ()),
        ({"dp_attention": True, "dp_size": 8}, {"enable_dp_attention": False, "attn_dp_size": 8}, ()),
        (
            {"dp_attention": True, "dp_size": 1},
            {"enable_dp_attention": False, "attn_dp_size": 1},
            ("dp_attention: asked true, runs with false",),
        ),
        ({"kv_cache_dtype": "bfloat16"}, {"kv_cache_dtype": "bf16"}, ()),
        ({"mem_fraction_static": 0.8}, {"mem_fraction_static": 0.8}, ()),
        ({"attention_backend": "dsa"}, {"attention_backend": "nsa"}, ()),
        ({"context_length": 4096}, {}, ()),
        (
            {"cuda_graph": False},
            {"cuda_graph_backend_decode": "disabled", "cuda_graph_backend_prefill": "disabled"},
            (),
        ),
        (
            {"cuda_graph": False},
            {"cuda_graph_backend_decode": "full", "cuda_graph_backend_prefill": "disabled"},
            ("cuda_graph: asked false, runs with true",),
        ),
        ({"cuda_graph": True}, {"cuda_graph_backend_decode": None, "cuda_graph_backend_prefill": "disabled"}, ()),
    ],
)
def test_every_difference_and_nothing_else(
    knobs: dict[str, KnobValue], info: dict[str, object], lines: tuple[str, ...]
) -> None:
    assert tuple(differences(knobs, info, {}, ACCEPTED).values()) == lines  # type: ignore[arg-type]


def test_the_log_is_believed_before_the_argument_that_it_replaced() -> None:
    told = {"dsa_prefill_backend": "flashmla_kv"}
    lines = differences({"prefill_backend": "flashmla_kv"}, told, {"prefill_backend": "flashmla_sparse"}, ACCEPTED)  # type: ignore[arg-type]
    assert lines == {"prefill_backend": "prefill_backend: asked flashmla_kv, runs with flashmla_sparse"}


def test_the_requests_of_a_rank_are_its_share() -> None:
    knobs: dict[str, KnobValue] = {"max_running_requests": 64, "dp_attention": True, "dp_size": 4}
    info = {"max_running_requests": 64, "enable_dp_attention": True, "dp_size": 4}
    lines = differences(knobs, info, {"max_running_requests": 16}, ACCEPTED)  # type: ignore[arg-type]
    assert [*lines.values()] == [
        "max_running_requests: asked 64, runs with 16 per rank (asked ÷ 4 groups of the attention)"
    ]


def test_settings_are_kept_without_what_is_empty_or_counts() -> None:
    info = {
        "tp_size": 1,
        "quantization": None,
        "enable_lora": False,
        "internal_states": [{}],
        "lora_paths": [],
        "seed": 0,
    }
    assert settings_of(info) == {"tp_size": 1, "seed": 0}  # type: ignore[arg-type]
