"""How each knob is said on a command line: every spelling that any version had, the newest first.

Which one is taken is decided by what the version accepts, not by its number. What several knobs say together
(data-parallel attention, JSON arguments, overlap of speculation) is in `render.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Spelling:
    """Words for a knob. `{}` stands for the value; a switch has words for one or both of its positions instead."""

    value: str = ""
    on: str = ""
    """Words for true; none where the runtime does it anyway."""
    off: str = ""
    values: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Canonical value → what versions called it, newest first; others are passed as they are."""

    @property
    def flags(self) -> tuple[str, ...]:
        """The flags among the words."""
        words = f"{self.value} {self.on} {self.off}".split()
        return tuple(word for word in words if word.startswith("--"))

    @property
    def is_switch(self) -> bool:
        """Whether it takes true and false."""
        return not self.value


def _value(*flags: str, values: Mapping[str, tuple[str, ...]] | None = None) -> tuple[Spelling, ...]:
    return tuple(Spelling(value=f"{flag} {{}}", values=values or {}) for flag in flags)


def _on(*flags: str) -> tuple[Spelling, ...]:
    return tuple(Spelling(on=flag) for flag in flags)


def _off(*flags: str) -> tuple[Spelling, ...]:
    return tuple(Spelling(off=flag) for flag in flags)


_OLD_CP = {"zigzag": ("in-seq-split",), "interleave": ("round-robin-split",)}

FLAGS: dict[str, tuple[Spelling, ...]] = {
    "kv_cache_dtype": _value("--kv-cache-dtype"),
    "attention_backend": _value("--attention-backend", values={"dsa": ("dsa", "nsa")}),
    "prefill_backend": _value("--dsa-prefill-backend", "--nsa-prefill-backend"),
    "decode_backend": _value("--dsa-decode-backend", "--nsa-decode-backend"),
    "topk_backend": _value("--dsa-topk-backend"),
    "mqa_logits_backend": _value("--dsa-paged-mqa-logits-backend"),
    "triton_union": _value("--dsa-triton-union"),
    "page_size": _value("--page-size"),
    "tp_size": _value("--tp-size"),
    "ep_size": _value("--ep-size"),
    "pp_size": _value("--pp-size"),
    "pp_max_micro_batch_size": _value("--pp-max-micro-batch-size"),
    "pp_async_batch_depth": _value("--pp-async-batch-depth"),
    "prefill_cp": _on(
        "--enable-prefill-cp", "--enable-dsa-prefill-context-parallel", "--enable-nsa-prefill-context-parallel"
    ),
    "cp_mode": (
        *_value("--cp-strategy"),
        *_value("--dsa-prefill-cp-mode", "--nsa-prefill-cp-mode", values=_OLD_CP),
    ),
    "attn_cp_size": _value("--attn-cp-size"),
    "dcp_size": _value("--dcp-size"),
    "cache_layer_split": _on("--enable-dsa-cache-layer-split"),
    "kv_cache_sharding": _on("--enable-kv-cache-sharding"),
    "moe_dense_tp_size": _value("--moe-dense-tp-size"),
    "moe_dp_size": _value("--moe-dp-size"),
    "custom_all_reduce": _off("--disable-custom-all-reduce"),
    "quantization": _value("--quantization"),
    "moe_runner_backend": _value("--moe-runner-backend"),
    "moe_a2a_backend": _value("--moe-a2a-backend"),
    "deepep_mode": _value("--deepep-mode"),
    "two_batch_overlap": _on("--enable-two-batch-overlap"),
    "single_batch_overlap": _on("--enable-single-batch-overlap"),
    "shared_experts_fusion": _off("--disable-shared-experts-fusion"),
    "speculative_algorithm": _value("--speculative-algorithm"),
    "speculative_num_steps": _value("--speculative-num-steps"),
    "speculative_eagle_topk": _value("--speculative-eagle-topk"),
    "speculative_num_draft_tokens": _value("--speculative-num-draft-tokens"),
    "speculative_adaptive": _on("--speculative-adaptive"),
    "speculative_adaptive_config": _value("--speculative-adaptive-config"),
    "speculative_draft_model": _value("--speculative-draft-model-path"),
    "chunked_prefill_size": _value("--chunked-prefill-size"),
    "max_prefill_tokens": _value("--max-prefill-tokens"),
    "mixed_chunk": _on("--enable-mixed-chunk"),
    "max_running_requests": _value("--max-running-requests"),
    "prefill_delayer": _on("--enable-prefill-delayer"),
    "prefill_delayer_queue_min_ratio": _value("--prefill-delayer-queue-min-ratio"),
    "prefill_delayer_max_delay_ms": _value("--prefill-delayer-max-delay-ms"),
    "schedule_policy": _value("--schedule-policy"),
    "schedule_conservativeness": _value("--schedule-conservativeness"),
    "overlap_schedule": _off("--disable-overlap-schedule"),
    "prefix_cache": _off("--disable-radix-cache"),
    "stream_interval": _value("--stream-interval"),
    "decode_log_interval": _value("--decode-log-interval"),
    "deterministic": _on("--enable-deterministic-inference"),
    "mem_fraction_static": _value("--mem-fraction-static"),
    "max_total_tokens": _value("--max-total-tokens"),
    "context_length": _value("--context-length"),
    "cuda_graph": _off(
        "--cuda-graph-backend-decode disabled --cuda-graph-backend-prefill disabled", "--disable-cuda-graph"
    ),
    "piecewise_cuda_graph": (
        # True has to be said since 0.5.14: by itself it captures no prefill of MLA. 0.5.22 has no tc_piecewise any more.
        Spelling(on="--cuda-graph-backend-prefill tc_piecewise", off="--cuda-graph-backend-prefill disabled"),
        Spelling(on="--cuda-graph-backend-prefill breakable", off="--cuda-graph-backend-prefill disabled"),
        *_off("--disable-piecewise-cuda-graph"),
        *_on("--enable-piecewise-cuda-graph"),
    ),
    "cuda_graph_max_bs": _value("--cuda-graph-max-bs-decode", "--cuda-graph-max-bs"),
    "hisparse": _on("--enable-hisparse"),
    "transfer_backend": _value("--disaggregation-transfer-backend"),
    "ib_devices": _value("--disaggregation-ib-device"),
    "decode_prefix_cache": _on("--disaggregation-decode-enable-radix-cache"),
    "dtype": _value("--dtype"),
    "load_format": _value("--load-format"),
    "trust_remote_code": _on("--trust-remote-code"),
    "tokenizer_path": _value("--tokenizer-path"),
    "tokenizer": _off("--skip-tokenizer-init"),
    "chat_template": _value("--chat-template"),
    "tool_call_parser": _value("--tool-call-parser"),
    "reasoning_parser": _value("--reasoning-parser"),
    "random_seed": _value("--random-seed"),
    "sampling_backend": _value("--sampling-backend"),
    "grammar_backend": _value("--grammar-backend"),
    "served_model_name": _value("--served-model-name"),
    "tokenizer_workers": _value("--tokenizer-worker-num"),
    "auto_truncate": _on("--allow-auto-truncate"),
    "metrics": _on("--enable-metrics"),
    "tokens_histogram": _on("--collect-tokens-histogram"),
    "log_requests": _on("--log-requests"),
    "watchdog_timeout_s": _value("--watchdog-timeout"),
    "server_warmup": _off("--skip-server-warmup"),
}
"""Knobs that are flags."""

VARIABLES: dict[str, tuple[str, ...]] = {
    "mha_threshold_tokens": (
        "SGLANG_DSA_PREFILL_DENSE_ATTN_KV_LEN_THRESHOLD",
        "SGLANG_NSA_PREFILL_DENSE_ATTN_KV_LEN_THRESHOLD",
    ),
    "fuse_topk": ("SGLANG_DSA_FUSE_TOPK", "SGLANG_NSA_FUSE_TOPK"),
    "pp_layer_partition": ("SGLANG_PP_LAYER_PARTITION",),
    "simulated_accept_length": ("SGLANG_SIMULATE_ACC_LEN",),
}
"""Knobs that are environment variables."""

FOREIGN = ("cpu_threads", "device")
"""Knobs of other runtimes, which no version takes from here: sglang serves on the accelerator that it finds."""
