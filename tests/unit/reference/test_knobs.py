"""Every knob changes what really runs, as the counters of a real server show."""

from __future__ import annotations

import json
import threading

import pytest

from unit.reference.engines import prompt
from unit.reference.server.serving import MHA, TABLES, serving
from unit.reference.server.test_tables import TINY, table

LONG = prompt(200)
SHORT = prompt(20)
FP8 = ("--kv-cache-dtype", "fp8_e4m3")


def tokens_by_path(server, *prompts, new=3):
    for item in prompts:
        server.generate(item, new=new)
    return server.counters()["tokens"]


def together(server, prompts, new):
    threads = [threading.Thread(target=server.generate, args=(item, new)) for item in prompts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_defaults_with_a_plain_cache():
    with serving() as server:
        assert tokens_by_path(server, LONG, SHORT) == {
            "decode.flashmla_sparse": 4,
            "prefill.dense_mha": 20,
            "prefill.flashmla_sparse": 200,
        }
        counters = server.counters()
        assert counters["indexed_tokens"] == {"prefill": 200, "decode": 2}
        assert counters["prefill_step_tokens"] == {"20": 1, "200": 1}
        info = server.info()
        assert (info["kv_cache_dtype"], info["dsa_prefill_backend"]) == ("bfloat16", "flashmla_sparse")
        assert (info["reference"]["index_topk"], info["reference"]["vocab_size"]) == (32, 259)
        assert "not sglang" in info["reference"]["note"]


def test_kv_cache_dtype_changes_the_cache_and_the_default_kernels(server):
    plain = server.info()["internal_states"][0]["memory_usage"]["kvcache"]
    with serving(*FP8) as packed:
        assert tokens_by_path(packed, LONG) == {"decode.flashmla_kv": 2, "prefill.flashmla_kv": 200}
        assert packed.info()["kv_cache_dtype"] == "fp8_e4m3"
        assert packed.info()["internal_states"][0]["memory_usage"]["kvcache"] < plain


def test_backends_and_threshold_with_a_packed_cache():
    flags = (*FP8, "--dsa-prefill-backend", "flashmla_sparse", "--dsa-decode-backend", "flashmla_sparse")
    with serving(*flags, **{MHA: "100"}) as server:
        assert tokens_by_path(server, LONG, prompt(90, seed=5)) == {
            "decode.flashmla_sparse": 4,
            "prefill.dense_mha": 90,
            "prefill.flashmla_sparse": 200,
        }
        assert server.info()["reference"]["mha_threshold_tokens"] == 100


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ({"form": "constant", "kernel": "flashmla_kv"}, {"prefill.flashmla_kv": 218}),
        ({"form": "ratio", "kv_per_new_token": 3}, {"prefill.flashmla_kv": 18, "prefill.flashmla_sparse": 200}),
        (
            {"form": "ratio", "kv_per_new_token": 3, "from_new_tokens": 201},
            {"prefill.flashmla_kv": 218},
        ),
        (
            {
                "form": "grid",
                "new_tokens": [1, 100],
                "kv_tokens": [1],
                "kernels": [["flashmla_sparse"], ["flashmla_kv"]],
            },
            {"prefill.flashmla_kv": 200, "prefill.flashmla_sparse": 18},
        ),
    ],
)
def test_flashmla_auto_follows_its_table(tmp_path, rule, expected):
    """200 new tokens, then 18 new ones after 192 that are cached: opposite rules, opposite kernels."""
    (tmp_path / TINY.file_name("flashmla_auto")).write_text(json.dumps(table(rule=rule)))
    with serving(*FP8, "--dsa-prefill-backend", "flashmla_auto", **{TABLES: str(tmp_path)}) as server:
        server.generate(LONG, new=1)
        server.generate([*LONG[:192], *prompt(18, seed=9)], new=1)
        assert server.counters()["tokens"] == expected
        assert str(tmp_path) in server.info()["reference"]["flashmla_auto_rule_source"]
        assert server.info()["reference"]["flashmla_auto_rule"]["form"] == rule["form"]


def test_threshold_table_and_the_shipped_ratio(tmp_path):
    content = table("mha_threshold", {"form": "threshold", "max_tokens": 100})
    (tmp_path / TINY.file_name("mha_threshold")).write_text(json.dumps(content))
    with serving(*FP8, "--dsa-prefill-backend", "flashmla_auto", **{TABLES: str(tmp_path)}) as server:
        assert tokens_by_path(server, LONG, prompt(90, seed=5), new=1) == {
            "prefill.dense_mha": 90,
            "prefill.flashmla_sparse": 200,
        }
        server.generate([*LONG[:192], 7], new=1)  # 193 < 512 × 1
        assert server.counters()["tokens"]["prefill.flashmla_sparse"] == 201
        assert server.info()["reference"]["flashmla_auto_rule"] == {
            "form": "ratio",
            "kv_per_new_token": 512.0,
            "from_new_tokens": None,
        }


def test_chunk_size_running_requests_and_prefix_cache():
    with serving("--chunked-prefill-size", "64", "--max-running-requests", "2", "--disable-radix-cache") as server:
        server.generate(LONG, new=2)
        assert server.generate(LONG, new=2)["meta_info"]["cached_tokens"] == 0
        counters = server.counters()
        assert counters["prefill_step_tokens"] == {"8": 2, "64": 6}
        together(server, [prompt(30, seed=seed) for seed in range(6)], new=40)
        counters = server.counters()
        assert counters["max_prefill_step_tokens"] <= 64
        assert counters["max_decode_step_requests"] == 2
        assert counters["cached_tokens"] == 0


def test_without_those_knobs_it_is_otherwise(server):
    before = server.counters()["cached_tokens"]
    fresh = prompt(200, seed=77)
    server.generate(fresh, new=2)
    assert server.generate(fresh, new=2)["meta_info"]["cached_tokens"] == 192
    assert server.counters()["cached_tokens"] == before + 192
    together(server, [prompt(30, seed=seed) for seed in range(6)], new=40)
    assert server.counters()["max_decode_step_requests"] > 2


def test_pool_context_and_page_size():
    flags = (
        "--max-total-tokens",
        "200",
        "--context-length",
        "150",
        "--page-size",
        "16",
        "--chunked-prefill-size",
        "-1",
    )
    with serving(*flags) as server:
        assert server.info()["max_total_num_tokens"] == 192
        assert server.info()["page_size"] == 16
        status, text = server.post("/generate", {"input_ids": prompt(150), "sampling_params": {"max_new_tokens": 1}})
        assert (status, "longer than the model's context length (150 tokens)" in text) == (400, True)
        status, text = server.post("/generate", {"input_ids": prompt(100), "sampling_params": {"max_new_tokens": 51}})
        assert (status, "maximum context length of 150 tokens" in text) == (400, True)
        # each needs 7 pages of the 12, so that they run one after the other, and the second evicts the first
        together(server, [prompt(100, seed=seed) for seed in range(3)], new=12)
        counters = server.counters()
        assert counters["max_decode_step_requests"] == 1
        assert counters["evicted_pages"] > 0
        server.generate(prompt(100, seed=3), new=1)  # the three above were served in any order
        assert server.generate(prompt(100, seed=3), new=1)["meta_info"]["cached_tokens"] == 96


def test_what_can_never_fit_into_the_pool_is_refused():
    with serving("--max-total-tokens", "128") as server:
        status, text = server.post("/generate", {"input_ids": prompt(100), "sampling_params": {"max_new_tokens": 50}})
        assert status == 400
        assert "can never fit" in json.loads(text)["error"]["message"]
        assert len(server.generate(prompt(100), new=28)["output_ids"]) == 28


def test_seed_and_dtype(server):
    ask = {"new": 12}
    default = server.generate(SHORT, **ask)["output_ids"]
    with serving("--random-seed", "7", "--dtype", "float32", "--skip-server-warmup") as other:
        assert other.generate(SHORT, **ask)["output_ids"] != default
        assert other.info()["dtype"] == "float32"
        assert other.info()["skip_server_warmup"] is True
    assert server.info()["random_seed"] == 0
