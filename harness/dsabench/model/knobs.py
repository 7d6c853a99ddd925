"""The canonical names of what can be set on a runtime. Runtimes render them to their own flags and environment.

One name, whatever the installed version calls it (its flags were renamed three times). The config refuses names
that are not listed here; each runtime refuses those that it lacks. Choices are those of all versions together; what
one version takes is the runtime's to say.
"""

from __future__ import annotations

from dataclasses import dataclass

KnobValue = bool | int | float | str
"""A setting. There is no None: a knob that is not set is not in the mapping, and the runtime's default holds."""


@dataclass(frozen=True, slots=True)
class Knob:
    """One setting: its type, allowed values if they are few or its least and greatest one, and one line of meaning."""

    name: str
    type: type
    meaning: str
    choices: tuple[str, ...] = ()
    minimum: int | None = None
    maximum: int | None = None


_PREFILL_KERNELS = (
    *("flashmla_sparse", "flashmla_kv", "flashmla_auto", "flashmla_sparse_q8", "fa3", "tilelang", "aiter", "trtllm"),
    *("flashinfer_sparse_mla", "triton", "triton_sparse_mla", "intel_xpu"),
)
_DECODE_KERNELS = tuple(name for name in _PREFILL_KERNELS if name != "triton_sparse_mla")

_ATTENTION = (
    Knob(
        "kv_cache_dtype",
        str,
        "storage of the latent KV cache",
        ("bfloat16", "fp8_e4m3", "auto", "fp8_e5m2", "fp4_e2m1"),
    ),
    Knob("attention_backend", str, "attention backend; dsa where the model has it", ("dsa", "fa3", "triton")),
    Knob("prefill_backend", str, "sparse attention kernel for prefill", _PREFILL_KERNELS),
    Knob("decode_backend", str, "sparse attention kernel for decode", _DECODE_KERNELS),
    Knob(
        "mha_threshold_tokens",
        int,
        "longest sequence whose prefill runs dense MHA instead of sparse attention",
        minimum=0,
    ),
    Knob("topk_backend", str, "kernel of the indexer's top-k", ("sgl-kernel", "torch", "flashinfer")),
    Knob("fuse_topk", bool, "transform the page table inside the top-k kernel"),
    Knob("mqa_logits_backend", str, "kernel of the indexer's logits", ("auto", "deepgemm", "cutedsl", "aiter")),
    Knob("triton_union", int, "queries that share one gather in triton_sparse_mla: 0, 2 or 4", minimum=0),
    Knob("index_topk_pattern", str, "IndexCache: per layer, F computes the indexer and S reuses its result"),
    Knob("page_size", int, "tokens of a KV page; overwritten for DSA models", minimum=1),
)

_PARALLEL = (
    Knob("tp_size", int, "tensor-parallel ranks", minimum=1),
    Knob("dp_size", int, "data-parallel groups of the attention", minimum=1),
    Knob("dp_attention", bool, "split the attention by requests over dp_size groups"),
    Knob("ep_size", int, "expert-parallel ranks", minimum=1),
    Knob("pp_size", int, "pipeline stages", minimum=1),
    Knob("pp_layer_partition", str, "layers of each pipeline stage, comma-separated"),
    Knob("pp_async_batch_depth", int, "batches in flight between pipeline stages", minimum=0),
    Knob("prefill_cp", bool, "split prefill tokens over the ranks (context parallelism)"),
    Knob("cp_mode", str, "how they are split: in two halves per rank, or in turns", ("zigzag", "interleave")),
    Knob("attn_cp_size", int, "context-parallel ranks of the attention", minimum=1),
    Knob("dcp_size", int, "context-parallel ranks of decode", minimum=1),
    Knob("cache_layer_split", bool, "spread the KV cache's layers over the context-parallel ranks"),
    Knob("kv_cache_sharding", bool, "spread the KV cache's tokens over the ranks"),
    Knob("moe_dense_tp_size", int, "tensor-parallel ranks of the dense MLP layers", minimum=1),
    Knob("moe_dp_size", int, "data-parallel groups of the MoE layers", minimum=1),
    Knob("custom_all_reduce", bool, "use the runtime's own all-reduce kernel"),
)

_EXPERTS = (
    Knob("quantization", str, "how the weights are quantised, where the model's config does not say it"),
    Knob("moe_runner_backend", str, "kernels of the experts; auto chooses"),
    Knob("moe_a2a_backend", str, "exchange of tokens between expert-parallel ranks; none is all-reduce"),
    Knob("deepep_mode", str, "DeepEP's kernels", ("auto", "normal", "low_latency")),
    Knob("two_batch_overlap", bool, "overlap two micro batches' compute and communication"),
    Knob("single_batch_overlap", bool, "overlap compute and communication inside a batch"),
    Knob("shared_experts_fusion", bool, "run the shared experts as one more routed expert"),
)

_SPECULATION = (
    Knob(
        "speculative_algorithm",
        str,
        "draft method; MTP is EAGLE; off leaves out all that speaks of speculation",
        ("EAGLE", "EAGLE3", "NEXTN", "STANDALONE", "NGRAM", "off"),
    ),
    Knob("speculative_num_steps", int, "draft steps before each verification", minimum=1),
    Knob("speculative_eagle_topk", int, "draft tokens kept per step; DSA takes 1", minimum=1),
    Knob("speculative_num_draft_tokens", int, "tokens verified at once; steps + 1 when topk is 1", minimum=1),
    Knob("speculative_overlap", bool, "overlap draft, verification and scheduling"),
    Knob("speculative_adaptive", bool, "choose the steps from the accept length while serving"),
    Knob("speculative_adaptive_config", str, "path of a JSON file: batch size → candidate steps"),
    Knob("speculative_draft_model", str, "draft model's path; DSA models bring their own"),
    Knob("simulated_accept_length", float, "pretend this accept length; the output is garbage", minimum=1),
)

_SCHEDULING = (
    Knob("chunked_prefill_size", int, "new tokens of prefill per step, at most; -1 does not split", minimum=-1),
    Knob("max_prefill_tokens", int, "tokens of a prefill batch, at most", minimum=1),
    Knob("mixed_chunk", bool, "put prefill chunks and decode into one batch"),
    Knob("max_running_requests", int, "requests in the running batch, at most", minimum=1),
    Knob("schedule_policy", str, "order of waiting requests", ("lpm", "random", "fcfs", "dfs-weight", "lof")),
    Knob("schedule_conservativeness", float, "how much memory is kept back for running requests", minimum=0),
    Knob("overlap_schedule", bool, "schedule the next batch while this one runs"),
    Knob("prefix_cache", bool, "reuse the KV of shared prefixes"),
    Knob("stream_interval", int, "tokens between frames of a stream", minimum=1),
    Knob("decode_log_interval", int, "decode steps between log lines", minimum=1),
    Knob("deterministic", bool, "kernels whose result does not depend on the batch"),
)

_MEMORY = (
    Knob("mem_fraction_static", float, "share of GPU memory for weights and KV pool", minimum=0, maximum=1),
    Knob("max_total_tokens", int, "tokens in the KV pool", minimum=1),
    Knob("context_length", int, "longest sequence served", minimum=1),
    Knob("cuda_graph", bool, "capture CUDA graphs"),
    Knob("piecewise_cuda_graph", bool, "capture CUDA graphs of prefill, piece by piece"),
    Knob("cuda_graph_max_bs", int, "largest decode batch captured as a CUDA graph", minimum=1),
)

_HISPARSE = (
    Knob("hisparse", bool, "keep a hot KV buffer on the GPU and the rest in host memory"),
    Knob("hisparse_top_k", int, "entries swapped in per step; the model's index_topk wins from 0.5.12", minimum=1),
    Knob("hisparse_device_buffer_size", int, "KV slots per request on the GPU", minimum=1),
    Knob("hisparse_host_to_device_ratio", int, "KV slots in host memory per slot on the GPU", minimum=1),
    Knob("hisparse_swap_in_block_size", int, "CUDA threads per block of the swap-in kernel", minimum=1),
)

_DISAGGREGATION = (
    Knob(
        "transfer_backend",
        str,
        "how KV goes from prefill to decode",
        ("mooncake", "nixl", "ascend", "fake", "mori", "mooncake_tcp"),
    ),
    Knob("ib_devices", str, "InfiniBand devices of the transfer, comma-separated"),
    Knob("decode_prefix_cache", bool, "keep the prefix cache on the decode role"),
)

_MODEL = (
    Knob("dtype", str, "dtype of weights and activations", ("bfloat16", "float32")),
    Knob(
        "load_format", str, "where weights come from; dummy makes random ones", ("auto", "dummy", "safetensors", "pt")
    ),
    Knob("model_overrides", str, "JSON merged into the model's config"),
    Knob("trust_remote_code", bool, "run code that the model's repository brings"),
    Knob("tokenizer_path", str, "tokenizer, where it is not the model's"),
    Knob("tokenizer", bool, "load a tokenizer; without one requests are token ids"),
    Knob("chat_template", str, "chat template's path or name"),
    Knob("tool_call_parser", str, "parser of tool calls", ("deepseekv31", "deepseekv32", "glm45", "glm47", "auto")),
    Knob("reasoning_parser", str, "parser that separates thinking", ("deepseek-v3", "glm45", "auto")),
    Knob("random_seed", int, "seed of random weights and sampling", minimum=0),
    Knob("sampling_backend", str, "kernels that sample the next token", ("flashinfer", "pytorch", "ascend")),
    Knob("grammar_backend", str, "library of constrained decoding", ("xgrammar", "outlines", "llguidance", "none")),
)

_SERVING = (
    Knob("served_model_name", str, "name under which the model answers"),
    Knob("tokenizer_workers", int, "tokenizer processes", minimum=1),
    Knob("auto_truncate", bool, "cut prompts that are too long instead of refusing them"),
    Knob("metrics", bool, "serve /metrics"),
    Knob("tokens_histogram", bool, "histograms of prompt and output lengths in /metrics"),
    Knob("log_requests", bool, "log requests and outputs"),
    Knob("watchdog_timeout_s", float, "a forward pass longer than this ends the server", minimum=0),
    Knob("server_warmup", bool, "answer one request before ready"),
    Knob(
        "device", str, "where the reference runtime computes; auto is cuda where there is one", ("cpu", "cuda", "auto")
    ),
    Knob("cpu_threads", int, "threads of the runtime's CPU operators", minimum=1),
)

KNOBS: dict[str, Knob] = {
    knob.name: knob
    for group in (
        *(_ATTENTION, _PARALLEL, _EXPERTS, _SPECULATION, _SCHEDULING),
        *(_MEMORY, _HISPARSE, _DISAGGREGATION, _MODEL, _SERVING),
    )
    for knob in group
}
