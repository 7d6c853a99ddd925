"""The KV cache: its dtype, its layout, its pages."""

from __future__ import annotations

from dsabench.sglang.rules.rule import V9, V10, V12, V20, V23, Rule, Words, says, to, without
from dsabench.sglang.rules.setting import Setting

_BF16 = {None, "auto", "bf16", "bfloat16"}


def _one_raw(s: Setting) -> bool:
    """One kernel keeps rows of 576 bytes, the other reads packed ones of 656.

    A half of disaggregation runs one of the two; up to 0.5.19 the other still decides on the rows.
    """
    if not s.uses_dsa or s.kernels.kv != "fp8_e4m3" or s.kernels.pair.count("trtllm") != 1:
        return False
    running = {"prefill": s.kernels.prefill, "decode": s.kernels.decode}
    return s.role == "server" or (s.version < V20 and running[s.role] != "trtllm")


def _packs_rows(s: Setting) -> bool:
    """Whether the pool keeps fp8 rows with their scales; up to 0.5.19 the half that does not run has its say too."""
    running = {"server": s.kernels.pair, "prefill": s.kernels.pair[:1], "decode": s.kernels.pair[1:]}
    chosen = s.kernels.pair if s.version < V20 else running[s.role]
    raw = "trtllm" in chosen or (s.version >= V23 and s.kernels.pair == ("tilelang", "tilelang"))
    return s.kernels.kv == "fp8_e4m3" and None not in s.kernels.pair and not raw


RULES = (
    Rule(
        id="KV01",
        severity="error",
        condition="a KV cache that is neither bfloat16 nor fp8_e4m3",
        knobs=("kv_cache_dtype",),
        when=lambda s: (
            s.model.is_dsa
            and (s.cuda or s.rocm)
            and s.text("kv_cache_dtype") not in {*_BF16, "fp8_e4m3"}
            and s.kernels.kv != "bfloat16"
        ),
        words=says("AssertionError", "DeepSeek DSA only supports bf16/bfloat16 or fp8_e4m3 kv_cache_dtype"),
        fix="kv_cache_dtype: fp8_e4m3 (or bfloat16)",
        change=to(kv_cache_dtype="fp8_e4m3"),
        source="0.5.9=srt/server_args.py:1152; 0.5.12=srt/server_args.py:1703; 0.5.16=srt/arg_groups/overrides.py:1245; "
        "0.5.23=srt/arg_groups/overrides.py:544",
    ),
    Rule(
        id="KV02",
        severity="advisory",
        condition="a sparse backend chosen while the KV dtype is left to the runtime, which takes fp8_e4m3 on Blackwell",
        knobs=("prefill_backend", "decode_backend", "kv_cache_dtype"),
        when=lambda s: (
            s.model.is_dsa
            and (s.cuda or s.rocm)
            and s.asked("prefill_backend", "decode_backend")
            and s.text("kv_cache_dtype") in {None, "auto"}
            and not (s.version == V9 and s.parallel.cp and s.parallel.cp_mode == "zigzag")
        ),
        words=says(
            "log",
            "When specifying --{s.prefix}-prefill-backend or --{s.prefix}-decode-backend, you should also explicitly set "
            "--kv-cache-dtype (e.g., 'fp8_e4m3' or 'bfloat16'). DeepSeek V3.2 defaults to FP8 KV cache which may not be "
            "compatible with all backends.",
        ),
        fix="set kv_cache_dtype",
        change=lambda s: {"kv_cache_dtype": s.kernels.kv or "bfloat16"},
        source="0.5.9=srt/server_args.py:1138; 0.5.12=srt/server_args.py:1686; 0.5.16=srt/arg_groups/overrides.py:1230; "
        "0.5.23=srt/arg_groups/overrides.py:521",
    ),
    Rule(
        id="KV03",
        severity="error",
        condition="packed fp8 KV with a kv_lora_rank that is no multiple of 128",
        knobs=("kv_cache_dtype", "model_overrides"),
        when=lambda s: s.uses_dsa and s.cuda and _packs_rows(s) and s.model.kv_lora_rank % 128 != 0,
        words=says("AssertionError", "kv_lora_rank {s.model.kv_lora_rank} must be multiple of quant_block_size 128"),
        fix="kv_cache_dtype: bfloat16, or leave kv_lora_rank at 512",
        change=lambda _: {"kv_cache_dtype": "bfloat16", "prefill_backend": None, "decode_backend": None},
        source="0.5.9=srt/model_executor/model_runner_kv_cache_mixin.py:241; "
        "0.5.12=srt/model_executor/model_runner_kv_cache_mixin.py:176; "
        "0.5.16=srt/mem_cache/kv_cache_configurator.py:1859; 0.5.23=srt/mem_cache/kv_cache_configurator.py:3466",
    ),
    Rule(
        id="KV04",
        severity="error",
        since=V20,
        condition="a model with learnable attention sinks and a KV cache other than bfloat16",
        knobs=("kv_cache_dtype", "model_overrides"),
        when=lambda s: (
            s.model.is_dsa and (s.cuda or s.rocm) and s.model.learnable_sink and s.text("kv_cache_dtype") not in _BF16
        ),
        words=says(
            "ValueError",
            "Learnable DSA attention sinks require a bfloat16 KV cache; got kv_cache_dtype={s.knobs[kv_cache_dtype]}.",
        ),
        fix="kv_cache_dtype: bfloat16",
        change=to(kv_cache_dtype="bfloat16"),
        source="0.5.20=srt/arg_groups/overrides.py:600; 0.5.23=srt/arg_groups/overrides.py:529",
    ),
    Rule(
        id="SL02",
        severity="error",
        condition="fp8_e4m3 KV with trtllm for one of prefill and decode only",
        knobs=("kv_cache_dtype", "prefill_backend", "decode_backend"),
        when=_one_raw,
        words=says(
            "silent",
            "nothing at launch; trtllm makes the pool store raw rows of 576 bytes and the other kernel reads packed rows "
            "of 656: a kernel fault or garbage",
        ),
        fix="trtllm for both, or for neither",
        change=lambda s: (
            {"prefill_backend": "trtllm", "decode_backend": "trtllm"}
            if (s.sm_major or 0) >= 10
            else {"prefill_backend": "flashmla_kv", "decode_backend": "flashmla_kv"}
        ),
        source="0.5.9=srt/model_executor/model_runner_kv_cache_mixin.py:223; "
        "0.5.23=srt/mem_cache/kv_cache_configurator.py:3425",
    ),
    Rule(
        id="PG01",
        severity="overwritten",
        condition="a page_size other than 64 on NVIDIA",
        knobs=("page_size",),
        when=lambda s: s.model.is_dsa and s.cuda and s.number("page_size") not in {None, 64},
        words=says("log", "Setting page size to 64 for DeepSeek DSA."),
        fix="leave page_size out",
        change=without("page_size"),
        source="0.5.9=srt/server_args.py:1259; 0.5.12=srt/server_args.py:1874; 0.5.16=srt/arg_groups/overrides.py:402; "
        "0.5.23=srt/arg_groups/model_overrides/deepseek_v2.py:173",
    ),
    Rule(
        id="PG02",
        severity="overwritten",
        condition="a page_size on AMD; from 0.5.12 it becomes 1, or 64 where aiter's preshuffled kernel is installed",
        knobs=("page_size",),
        when=lambda s: (
            s.model.is_dsa and s.rocm and s.asked("page_size") and (s.version >= V12 or s.number("page_size") != 1)
        ),
        words=(
            Words(V9, "log", "Setting page size to 1 for DeepSeek DSA on ROCm."),
            Words(
                V12,
                "log",
                "Setting page size to 1 for DeepSeek DSA on ROCm (aiter preshuffle paged-MQA path unavailable: needs "
                "Triton>=3.5.0 or AITER_ENABLE_AOT_GLUON_PA_MQA_LOGITS=1).",
            ),
        ),
        fix="leave page_size out",
        change=without("page_size"),
        source="0.5.9=srt/server_args.py:1254; 0.5.12=srt/server_args.py:1868; 0.5.16=srt/arg_groups/overrides.py:396; "
        "0.5.23=srt/arg_groups/model_overrides/deepseek_v2.py:157",
    ),
    Rule(
        id="PG03",
        severity="overwritten",
        condition="a KV dtype other than bfloat16 with zigzag context parallelism in 0.5.9",
        until=V9,
        knobs=("kv_cache_dtype", "prefill_cp", "cp_mode"),
        when=lambda s: (
            s.parallel.cp and s.parallel.cp_mode == "zigzag" and s.text("kv_cache_dtype") not in {*_BF16, "auto"}
        ),
        words=says(
            "log",
            "For in-seq split mode, we have the following restrictions: moe_dense_tp_size == 1, moe_a2a_backend == "
            "deepep, ep_size == tp_size, kv_cache_dtype == bf16, batch_size == 1",
        ),
        fix="kv_cache_dtype: bfloat16, or interleave",
        change=to(kv_cache_dtype="bfloat16"),
        source="0.5.9=srt/server_args.py:1220",
    ),
    Rule(
        id="SL01",
        severity="overwritten",
        since=V10,
        until=V10,
        condition="a sparse backend other than trtllm with fp8_e4m3 KV on Blackwell in 0.5.10",
        knobs=("kv_cache_dtype", "prefill_backend", "decode_backend"),
        when=lambda s: (
            s.model.is_dsa
            and (s.sm_major or 0) >= 10
            and s.kernels.kv == "fp8_e4m3"
            and not s.hisparse.on
            and any(s.text(name) not in {None, "trtllm"} for name in ("prefill_backend", "decode_backend"))
        ),
        words=says("silent", "both become trtllm; a line of the log names them"),
        fix="trtllm for both, kv_cache_dtype: bfloat16, or another version",
        change=to(prefill_backend="trtllm", decode_backend="trtllm"),
        source="0.5.10=srt/server_args.py:1464",
    ),
)
